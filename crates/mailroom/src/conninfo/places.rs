//! The hosts of a connection string, with their addresses and ports. Pure.

use std::net::IpAddr;
use std::path::Path;

use super::{ConninfoError, Options, problem};

/// Directories of the server's socket.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const DEFAULT_PORT: u16 = 5432;

/// A host, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name or address, or the directory of its socket.
    pub host: String,
    /// Its address, if the name is not to be looked up.
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl Place {
    /// Whether it is a socket of this machine.
    pub fn is_local(&self) -> bool {
        self.host.starts_with('/')
    }

    /// The host, and its port unless that is the usual one.
    pub fn label(&self) -> String {
        match self.port {
            DEFAULT_PORT => self.host.clone(),
            port => format!("{}:{port}", self.host),
        }
    }

    /// The host as the password file names it.
    pub fn name_in_passfile(&self) -> &str {
        match SOCKET_DIRECTORIES.contains(&self.host.as_str()) {
            true => "localhost",
            false => &self.host,
        }
    }
}

/// Reads `host`, `hostaddr` and `port`.
///
/// # Errors
/// The option that is wrong, without its value.
pub fn parse(options: &Options) -> Result<Vec<Place>, ConninfoError> {
    let [mut hosts, addresses, ports] = ["host", "hostaddr", "port"].map(|name| {
        let value = options.get(name).map(String::as_str).unwrap_or_default();
        value.split(',').map(str::trim).collect::<Vec<_>>()
    });
    if hosts == [""] {
        hosts = match addresses == [""] {
            true => vec![usual_host()],
            false => addresses.clone(),
        };
    }
    if ports.len() > 1 && ports.len() != hosts.len() {
        return problem("there are not as many ports as hosts");
    }
    if addresses != [""] && addresses.len() != hosts.len() {
        return problem("there are not as many addresses in hostaddr as hosts");
    }
    let place = |(number, host): (usize, &&str)| {
        let address: Option<IpAddr> = match addresses.get(number).copied().unwrap_or_default() {
            "" => None,
            text => match text.parse() {
                Ok(address) => Some(address),
                Err(_) => return problem("hostaddr holds what is no address"),
            },
        };
        let host = match (*host, address) {
            ("", None) => "localhost".to_owned(),
            // An address takes precedence over a socket.
            (host, Some(address)) if host.is_empty() || host.starts_with('/') => {
                address.to_string()
            }
            (host, _) => host.to_owned(),
        };
        let port = ports.get(number).or(ports.first()).copied();
        let port = match port.unwrap_or_default() {
            "" => DEFAULT_PORT,
            text => match text.parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return problem("port is not a number from 1 to 65535"),
            },
        };
        Ok(Place {
            host,
            address,
            port,
        })
    };
    hosts.iter().enumerate().map(place).collect()
}

/// The host if none is given.
fn usual_host() -> &'static str {
    let mut directories = SOCKET_DIRECTORIES.iter();
    directories
        .find(|path| Path::new(path).is_dir())
        .unwrap_or(&"localhost")
}
