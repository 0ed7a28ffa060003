//! Connection parameters in the syntax of libpq: URLs, keyword strings, the environment.
//!
//! | module | owns |
//! |---|---|
//! | `url` | `postgresql://` |
//! | `keywords` | `host=… dbname=…` |
//! | `names` | the supported options |
//! | `passfile` | `~/.pgpass` |
//! | `environment` | the environment |
//!
//! Errors name an option, never its value, which may be a password in the wrong place; so
//! may be the name of an unknown option.

mod environment;
mod keywords;
mod names;
mod passfile;
#[cfg(test)]
mod tests;
mod url;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts, SslMode, TargetSessionAttrs};

pub use self::environment::Environment;
use self::names::{KNOWN, looks_like_url};
use crate::tls::{Mode, Roots, Tls};

/// Options by their names in libpq.
pub type Options = BTreeMap<String, String>;

/// The default connect timeout; libpq has none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP user timeout: how long sent data may remain unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);
const KEEPALIVES_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVES_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVES_COUNT: u32 = 3;
/// Directories of the server's socket.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// An error in connection parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct ConninfoError(String);

impl std::fmt::Display for ConninfoError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

fn problem<T>(text: impl Into<String>) -> Result<T, ConninfoError> {
    Err(ConninfoError(text.into()))
}

/// The connection parameters of a database.
#[derive(Clone)]
pub struct Target {
    config: Config,
    /// The options of TLS.
    pub tls: Tls,
    /// Host and database, for people.
    label: String,
    database: String,
    passfile: Option<PathBuf>,
}

impl Target {
    /// Parses a URL, a keyword string or the name of a database. Other parameters come from the environment.
    ///
    /// # Errors
    /// The error, without any value.
    pub fn parse(given: &str, around: &Environment) -> Result<Self, ConninfoError> {
        let mut options = if url::is_url(given) {
            url::parse(given)?
        } else if looks_like_url(given.split('=').next().unwrap_or_default()) {
            return problem("a URL has to begin with postgresql:// or postgres://");
        } else if given.contains('=') {
            keywords::parse(given)?
        } else {
            Options::from([("dbname".to_owned(), given.to_owned())])
        };
        options.retain(|_, value| !value.is_empty());
        for (name, variable) in KNOWN {
            let value = variable.and_then(|variable| around.variables.get(variable));
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                options
                    .entry(name.to_owned())
                    .or_insert_with(|| value.clone());
            }
        }
        // The log names them.
        for name in ["dbname", "host"] {
            if options.get(name).is_some_and(|value| looks_like_url(value)) {
                return problem(format!("{name} holds a URL, which --database takes"));
            }
        }
        Self::from_options(&options, around)
    }

    fn from_options(options: &Options, around: &Environment) -> Result<Self, ConninfoError> {
        let get = |name: &str| options.get(name).map(String::as_str);
        let user = get("user").unwrap_or(&around.user);
        let database = get("dbname").unwrap_or(user);
        let mut config = Config::new();
        config
            .user(user)
            .dbname(database)
            .application_name(get("application_name").unwrap_or("mailroom send"));
        let places = set_places(&mut config, options)?;
        set_timeouts(&mut config, options)?;
        set_session(&mut config, options, places.len())?;
        if let Some(password) = get("password") {
            config.password(password);
        }
        let tls = tls_of(options, around)?;
        // As in libpq: a local socket needs no encryption.
        let is_local = places.iter().all(|place| place.starts_with('/'));
        config.ssl_mode(match tls.mode {
            _ if is_local => SslMode::Disable,
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        let in_home = || around.home.as_ref().map(|home| home.join(".pgpass"));
        Ok(Self {
            tls,
            label: format!("{database}@{}", places.join(",")),
            database: database.to_owned(),
            passfile: get("passfile").map(PathBuf::from).or_else(in_home),
            config,
        })
    }

    /// The configuration of a connection. The password file is read each time, because passwords change.
    pub fn config(&self) -> Config {
        let mut config = self.config.clone();
        if config.get_password().is_none()
            && let Some(password) = self.password_of_file()
        {
            config.password(password);
        }
        config
    }

    fn password_of_file(&self) -> Option<String> {
        let path: &Path = self.passfile.as_deref()?;
        let content = passfile::read(path)?;
        let user = self.config.get_user().unwrap_or_default();
        let ports = self.config.get_ports();
        hosts(&self.config).enumerate().find_map(|(place, host)| {
            let port = ports.get(place).or(ports.first()).copied().unwrap_or(5432);
            passfile::find(&content, &[&host, &port.to_string(), &self.database, user])
        })
    }

    /// The password file, if it is ignored because other users may read it.
    pub fn unused_passfile(&self) -> Option<&Path> {
        let path = self.passfile.as_deref()?;
        passfile::is_too_open(path).then_some(path)
    }

    /// The name of the database as it was given.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The database and its host.
    pub fn label(&self) -> &str {
        &self.label
    }
}

/// The hosts as the password file names them.
fn hosts(config: &Config) -> impl Iterator<Item = String> {
    use tokio_postgres::config::Host;
    config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path)
            if SOCKET_DIRECTORIES
                .iter()
                .any(|known| path == Path::new(known)) =>
        {
            "localhost".to_owned()
        }
        Host::Unix(path) => path.to_string_lossy().into_owned(),
    })
}

/// Sets hosts, addresses and ports; returns the hosts with their ports.
fn set_places(config: &mut Config, options: &Options) -> Result<Vec<String>, ConninfoError> {
    let list = |name: &str| -> Vec<String> {
        let value = options.get(name).map(String::as_str).unwrap_or_default();
        value
            .split(',')
            .map(|part| part.trim().to_owned())
            .collect()
    };
    let mut hosts = list("host");
    let addresses = list("hostaddr");
    if hosts == [""] {
        let usual = SOCKET_DIRECTORIES
            .iter()
            .find(|path| Path::new(path).is_dir());
        hosts = if addresses == [""] {
            vec![usual.unwrap_or(&"localhost").to_string()]
        } else {
            addresses.clone()
        };
    }
    let ports = list("port");
    if ports.len() > 1 && ports.len() != hosts.len() {
        return problem("there are not as many ports as hosts");
    }
    if addresses != [""] {
        if addresses.len() != hosts.len() {
            return problem("there are not as many addresses in hostaddr as hosts");
        }
        for address in &addresses {
            let Ok(address) = address.parse() else {
                return problem("hostaddr holds what is no address");
            };
            config.hostaddr(address);
        }
    }
    let mut places = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let port = ports.get(number).or(ports.first()).map(String::as_str);
        let port = match port.unwrap_or_default() {
            "" => 5432,
            port => match port.parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return problem("port is not a number from 1 to 65535"),
            },
        };
        config.host(if host.is_empty() { "localhost" } else { host });
        config.port(port);
        places.push(if port == 5432 {
            host.clone()
        } else {
            format!("{host}:{port}")
        });
    }
    Ok(places)
}

fn number(options: &Options, name: &str) -> Result<Option<u32>, ConninfoError> {
    let Some(value) = options.get(name) else {
        return Ok(None);
    };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => problem(format!("{name} is not a number")),
    }
}

fn set_timeouts(config: &mut Config, options: &Options) -> Result<(), ConninfoError> {
    let seconds = |name: &str, usual| -> Result<Duration, ConninfoError> {
        let value = number(options, name)?.filter(|&value| value > 0);
        Ok(value.map_or(usual, |value| Duration::from_secs(value.into())))
    };
    config
        .connect_timeout(seconds("connect_timeout", CONNECT_TIMEOUT)?)
        .keepalives(number(options, "keepalives")? != Some(0))
        .keepalives_idle(seconds("keepalives_idle", KEEPALIVES_IDLE)?)
        .keepalives_interval(seconds("keepalives_interval", KEEPALIVES_INTERVAL)?)
        .keepalives_retries(number(options, "keepalives_count")?.unwrap_or(KEEPALIVES_COUNT));
    let user_timeout = number(options, "tcp_user_timeout")?.filter(|&value| value > 0);
    config.tcp_user_timeout(user_timeout.map_or(TCP_USER_TIMEOUT, |millis| {
        Duration::from_millis(millis.into())
    }));
    Ok(())
}

fn set_session(config: &mut Config, options: &Options, hosts: usize) -> Result<(), ConninfoError> {
    let get = |name: &str| options.get(name).map(String::as_str);
    if let Some(options) = get("options") {
        config.options(options);
    }
    config.target_session_attrs(match get("target_session_attrs") {
        // Of several hosts, the one that accepts writes is meant.
        None if hosts > 1 => TargetSessionAttrs::ReadWrite,
        None | Some("any") => TargetSessionAttrs::Any,
        Some("read-write" | "primary") => TargetSessionAttrs::ReadWrite,
        Some(_) => {
            return problem("target_session_attrs is none of any, read-write and primary");
        }
    });
    config.channel_binding(match get("channel_binding") {
        None | Some("prefer") => ChannelBinding::Prefer,
        Some("disable") => ChannelBinding::Disable,
        Some("require") => ChannelBinding::Require,
        Some(_) => return problem("channel_binding is none of disable, prefer and require"),
    });
    config.load_balance_hosts(match get("load_balance_hosts") {
        None | Some("disable") => LoadBalanceHosts::Disable,
        Some("random") => LoadBalanceHosts::Random,
        Some(_) => return problem("load_balance_hosts is none of disable and random"),
    });
    Ok(())
}

fn tls_of(options: &Options, around: &Environment) -> Result<Tls, ConninfoError> {
    let get = |name: &str| options.get(name).map(String::as_str);
    let in_home = |name: &str| {
        let path = around.home.as_ref()?.join(".postgresql").join(name);
        path.exists().then_some(path)
    };
    let roots = match get("sslrootcert") {
        Some("system") => Some(Roots::System),
        Some(path) => Some(Roots::File(path.into())),
        None => in_home("root.crt").map(Roots::File),
    };
    let mode = match get("sslmode") {
        None if roots == Some(Roots::System) => Mode::VerifyFull,
        None | Some("prefer" | "allow") => Mode::Prefer,
        Some("disable") => Mode::Disable,
        // As in libpq: a file with authorities makes verification the default.
        Some("require") if matches!(roots, Some(Roots::File(_))) => Mode::VerifyCa,
        Some("require") => Mode::Require,
        Some("verify-ca") => Mode::VerifyCa,
        Some("verify-full") => Mode::VerifyFull,
        Some(_) => {
            return problem(
                "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full",
            );
        }
    };
    if roots == Some(Roots::System) && mode != Mode::VerifyFull {
        return problem("sslrootcert=system needs sslmode=verify-full");
    }
    let certificate = get("sslcert")
        .map(PathBuf::from)
        .or_else(|| in_home("postgresql.crt"));
    let key = get("sslkey")
        .map(PathBuf::from)
        .or_else(|| in_home("postgresql.key"));
    Ok(Tls {
        mode,
        roots,
        identity: certificate.zip(key),
    })
}
