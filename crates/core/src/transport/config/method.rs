//! Builds a transport from its keys.

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Scheme;
use rustls::ClientConfig;
use zeroize::Zeroizing;

use super::error::ConfigError;
use super::section::{PRINTABLE, Section, printable};
use super::{Method, values};
use crate::transport::capabilities::Capabilities;
use crate::transport::file::Directory;
use crate::transport::http::ClientOptions;
use crate::transport::invalid::Invalid;
use crate::transport::network_policy::{AllowedNetworks, Exposed, Server};
use crate::transport::single::Single;
use crate::transport::smtp::{self, Login, Relay, Tls};
use crate::transport::{providers, tls};

/// Default number of concurrent requests.
const CONCURRENCY: i32 = 64;
/// Default number of concurrent connections to a relay.
const CONNECTIONS: i32 = 4;
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// A server of the application is expected to be fast.
pub(super) const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);
const LEAST_CONNECT_TIMEOUT: Duration = Duration::from_millis(100);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
/// With STARTTLS or without TLS.
const SUBMISSION_PORT: u16 = 587;

/// The certificate authorities of the system, read once.
#[derive(Default)]
pub(super) struct System(Option<ClientConfig>);

impl System {
    fn tls(&mut self) -> Result<ClientConfig, Invalid> {
        if let Some(known) = &self.0 {
            return Ok(known.clone());
        }
        Ok(self.0.insert(tls::config(None, false)?).clone())
    }
}

/// The result of [`make`].
pub(super) struct Made {
    pub(super) method: Method,
    pub(super) capabilities: Arc<dyn Capabilities>,
    /// Identifies server and account; contains no secret.
    pub(super) account: String,
    /// The default concurrency.
    pub(super) concurrency: i32,
}

impl Made {
    fn single(single: Single, account: String, concurrency: i32) -> Self {
        let single = Arc::new(single);
        Self {
            method: Method::Single(Arc::clone(&single)),
            capabilities: single,
            account,
            concurrency,
        }
    }
}

/// Builds the transport of a section.
///
/// # Errors
/// The key that is missing or invalid.
pub(super) fn make(
    section: &Section<'_>,
    provider: &str,
    from: &str,
    system: &mut System,
) -> Result<Made, ConfigError> {
    match provider {
        "smtp" => smtp(section, from, system),
        "file" => file(section, from),
        "log" => Ok(Made::single(Single::Log, String::new(), 1)),
        _ => http(section, provider, from, system),
    }
}

fn http(
    section: &Section<'_>,
    name: &str,
    from: &str,
    system: &mut System,
) -> Result<Made, ConfigError> {
    let endpoint = section.text("endpoint")?.unwrap_or("").trim();
    let credentials = section.credentials(name)?;
    let provider = providers::choose(name, endpoint, from, &credentials)
        .map_err(|invalid| section.invalid(&invalid))?;
    let provider: Arc<dyn providers::Provider> = provider.into();
    let usual = if name == "webhook" {
        WEBHOOK_TIMEOUT
    } else {
        TIMEOUT
    };
    let exposed = provider.exposed();
    let uri: Option<Uri> = endpoint.parse().ok();
    let in_clear = uri.filter(|uri| uri.scheme() == Some(&Scheme::HTTP));
    let options = options(section, usual, (exposed, in_clear.is_some()), system)?;
    if let Some(host) = in_clear.as_ref().and_then(Uri::host) {
        let judged = options
            .networks
            .judge_setting(host, exposed, Server::Endpoint);
        judged.map_err(|invalid| section.invalid(&invalid))?;
    }
    let capabilities = Arc::clone(&provider) as Arc<dyn Capabilities>;
    Ok(Made {
        method: Method::Http {
            provider,
            options: Box::new(options),
        },
        capabilities,
        account: [endpoint, from, &credentials.digest()].join("\n"),
        concurrency: CONCURRENCY,
    })
}

fn options(
    section: &Section<'_>,
    usual: Duration,
    (exposed, in_clear): (Exposed, bool),
    system: &mut System,
) -> Result<ClientOptions, ConfigError> {
    let networks = section.list("allowed_networks", "a network", |text| {
        AllowedNetworks::parse(text)
            .ok()
            .filter(|_| !text.contains(','))
    })?;
    let ca_file = section.path("ca_file")?;
    let tls = match &ca_file {
        None if !in_clear => system.tls(),
        ca_file => tls::config(ca_file.as_deref(), in_clear),
    };
    Ok(ClientOptions {
        networks: networks.unwrap_or_default().into_iter().collect(),
        exposed,
        tls: tls.map_err(|invalid| section.invalid(&invalid))?,
        timeout: section
            .duration("timeout", LEAST_TIMEOUT..=LONGEST_TIMEOUT)?
            .unwrap_or(usual),
        connect_timeout: section
            .duration("connect_timeout", LEAST_CONNECT_TIMEOUT..=LONGEST_TIMEOUT)?
            .unwrap_or(CONNECT_TIMEOUT),
    })
}

fn smtp(section: &Section<'_>, from: &str, system: &mut System) -> Result<Made, ConfigError> {
    let host = section.text("host")?.unwrap_or("").trim();
    let what = "\"starttls\", \"implicit\" or \"none\"";
    let tls = section.read("tls", what, read_tls)?;
    let tls = tls.unwrap_or(Tls::Starttls);
    let usual = match tls {
        Tls::Implicit => smtp::SUBMISSIONS_PORT,
        Tls::Starttls | Tls::None => SUBMISSION_PORT,
    };
    let port = section.number("port", 1..=i32::from(u16::MAX))?;
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(usual);
    let helo = section.read("helo", PRINTABLE, printable)?;
    let login = login(section)?;
    let username = match &login {
        Login::None => "",
        Login::Password { username, .. } | Login::Xoauth2 { username, .. } => username,
    };
    let account = format!("{host}:{port}\n{username}\n{from}");
    let exposed = login.exposed();
    let options = options(section, TIMEOUT, (exposed, tls == Tls::None), system)?;
    let connections = section.concurrency()?.unwrap_or(CONNECTIONS);
    let relay = Relay::new(smtp::Settings {
        host: host.to_owned(),
        port,
        tls,
        login,
        from: from.to_owned(),
        bounce_address: section.text("bounce_address")?.map(str::to_owned),
        helo: helo.map_or_else(String::new, |helo| helo.to_string()),
        networks: options.networks,
        tls_config: options.tls,
        timeout: options.timeout,
        connect_timeout: options.connect_timeout,
        connections: usize::try_from(connections).unwrap_or(1),
    });
    let relay = relay.map_err(|invalid| section.invalid(&invalid))?;
    let single = Single::Smtp(Box::new(relay));
    Ok(Made::single(single, account, CONNECTIONS))
}

fn read_tls(text: &str) -> Option<Tls> {
    match text {
        "starttls" => Some(Tls::Starttls),
        "implicit" => Some(Tls::Implicit),
        "none" => Some(Tls::None),
        _ => None,
    }
}

fn login(section: &Section<'_>) -> Result<Login, ConfigError> {
    let username = section.read("username", values::TEXT, values::text)?;
    let credentials = section.credentials("smtp")?;
    let password = credentials.get("password");
    let token_file = section.path("token_file")?;
    let invalid = match (username, password, token_file) {
        (_, Some(_), Some(_)) => Invalid::new("token_file", "is given besides password"),
        (None, None, None) => return Ok(Login::None),
        (Some(_), None, None) => Invalid::missing("password"),
        (None, _, _) => Invalid::missing("username"),
        (Some(username), Some(password), None) => {
            return Ok(Login::Password {
                username: username.to_string(),
                password: Zeroizing::new(password.to_owned()),
            });
        }
        (Some(username), None, Some(token_file)) => {
            return Ok(Login::Xoauth2 {
                username: username.to_string(),
                token_file,
            });
        }
    };
    Err(section.invalid(&invalid))
}

fn file(section: &Section<'_>, from: &str) -> Result<Made, ConfigError> {
    let Some(path) = section.path("directory")? else {
        return Err(section.invalid(&Invalid::missing("directory")));
    };
    let account = format!("{}\n{from}", path.display());
    let directory = Directory::new(path, from).map_err(|invalid| section.invalid(&invalid))?;
    Ok(Made::single(Single::File(directory), account, 1))
}
