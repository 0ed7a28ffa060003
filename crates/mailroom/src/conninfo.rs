//! Connection parameters in the syntax of libpq: URLs, keyword strings, the environment.
//!
//! | module | owns |
//! |---|---|
//! | `url` | `postgresql://` |
//! | `keywords` | `host=… dbname=…` |
//! | `names` | the supported options |
//! | `places` | hosts, addresses and ports |
//! | `passfile` | `~/.pgpass` |
//! | `environment` | the environment |
//!
//! Errors name an option, never its value, which may be a password in the wrong place; so
//! may be the name of an unknown option.

mod environment;
mod keywords;
mod names;
mod passfile;
mod places;
#[cfg(test)]
mod tests;
mod url;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts, SslMode, TargetSessionAttrs};

pub use self::environment::Environment;
use self::names::{KNOWN, looks_like_url};
use self::places::Place;
use crate::log::Log;
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
    /// The configuration of a connection, without the host.
    config: Config,
    places: Vec<Place>,
    /// The options of TLS.
    pub tls: Tls,
    database: String,
    passfile: Option<PathBuf>,
    names_role: bool,
}

/// A host of a database, and the configuration of a connection to it.
pub struct Host {
    /// The name of the host in messages.
    pub label: String,
    pub config: Config,
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
            if options
                .get(name)
                .is_some_and(|value| value.contains(['=', ';']))
            {
                return problem(format!(
                    "{name} holds several options, which white space has to separate"
                ));
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
            .application_name(get("application_name").unwrap_or(around.application));
        let places = places::parse(options)?;
        set_timeouts(&mut config, options)?;
        set_session(&mut config, options, places.len())?;
        if let Some(password) = get("password") {
            config.password(password);
        }
        let in_home = || around.home.as_ref().map(|home| home.join(".pgpass"));
        Ok(Self {
            tls: tls_of(options, around)?,
            places,
            database: database.to_owned(),
            passfile: get("passfile").map(PathBuf::from).or_else(in_home),
            names_role: ["user", "password", "passfile"]
                .iter()
                .any(|name| options.contains_key(*name)),
            config,
        })
    }

    /// Whether a role, or its password, came with the parameters.
    pub fn names_role(&self) -> bool {
        self.names_role
    }

    /// The same for this role with this password.
    pub fn of_role(&self, role: &str, password: &str) -> Self {
        let mut target = self.clone();
        target.config.user(role).password(password);
        target
    }

    /// The hosts. The password file is read each time, because passwords change.
    pub fn hosts(&self) -> Vec<Host> {
        let passwords = match self.config.get_password() {
            Some(_) => None,
            None => self.passfile.as_deref().and_then(passfile::read),
        };
        let user = self.config.get_user().unwrap_or_default();
        let host = |place: &Place| {
            let mut config = self.config.clone();
            config.host(&place.host).port(place.port);
            config.ssl_mode(self.ssl_mode(place));
            if let Some(address) = place.address {
                config.hostaddr(address);
            }
            let (host, port) = (place.name_in_passfile(), place.port.to_string());
            let wanted = [host, &port, &self.database, user];
            let password = passwords
                .as_deref()
                .and_then(|content| passfile::find(content, &wanted));
            if let Some(password) = password {
                config.password(password);
            }
            Host {
                label: place.label(),
                config,
            }
        };
        self.places.iter().map(host).collect()
    }

    /// As in libpq: a local socket needs no encryption.
    fn ssl_mode(&self, place: &Place) -> SslMode {
        match self.tls.mode {
            _ if place.is_local() => SslMode::Disable,
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// The maximum duration of an attempt to connect to an address of a host.
    pub fn connect_timeout(&self) -> Duration {
        let timeout = self.config.get_connect_timeout().copied();
        timeout.unwrap_or(CONNECT_TIMEOUT)
    }

    /// Whether hosts, and the addresses of a host, are tried in random order.
    pub fn is_random(&self) -> bool {
        self.config.get_load_balance_hosts() == LoadBalanceHosts::Random
    }

    /// The password file, if it is needed, and ignored because other users may read it.
    pub fn unused_passfile(&self) -> Option<&Path> {
        if self.config.get_password().is_some() {
            return None;
        }
        let path = self.passfile.as_deref()?;
        passfile::is_too_open(path).then_some(path)
    }

    /// Writes a warning if the password file is ignored.
    pub fn warn_of_passfile(&self, log: &Log) {
        if let Some(path) = self.unused_passfile() {
            log.warn(
                &format!("the password file \"{}\" is not used", path.display()),
                "Others than its owner may read it.",
                "Set its mode to 0600.",
            );
        }
    }

    /// The name of the database as it was given.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The database and its hosts.
    pub fn label(&self) -> String {
        let hosts: Vec<String> = self.places.iter().map(Place::label).collect();
        format!("{}@{}", self.database, hosts.join(","))
    }
}

/// The connection parameters of these databases, or why one of them has none.
pub fn parse_all(databases: &[String], around: &Environment) -> Result<Vec<Target>, String> {
    let target = |(index, given): (usize, &String)| {
        Target::parse(given, around).map_err(|error| format!("database {}: {error}", index + 1))
    };
    databases.iter().enumerate().map(target).collect()
}

/// The names of the databases in the log; with their hosts if the names alone are not unique.
pub fn labels(targets: &[Target]) -> Vec<String> {
    let names: HashSet<&str> = targets.iter().map(Target::database).collect();
    let is_enough = names.len() == targets.len();
    let label = |target: &Target| match is_enough {
        true => target.database().to_owned(),
        false => target.label(),
    };
    targets.iter().map(label).collect()
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
