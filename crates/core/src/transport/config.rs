//! The transports file.
//!
//! It is TOML, with one table `[transports.NAME]` for each transport. Endpoints, credentials and certificate files are
//! configured here only. The file, and every secret file that it names, must satisfy the rule of `secret_file`. Errors
//! name file, line and key; they never contain a value, because it may be a secret in the wrong place.

use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::capabilities::DeliveryConfig;
use super::http::ClientOptions;
use super::providers::Provider;
use super::providers::mailbox;
use super::rate::Rate;
use super::single::Single;
use crate::events::Receiver;
use crate::secret_file;

mod error;
mod keys;
mod method;
mod section;
mod values;

pub use error::ConfigError;
use method::System;
pub use section::SectionState;
use section::{Section, line_of};

/// How many ambiguous attempts of one mail are repeated by default.
const MAX_AMBIGUOUS: i32 = 1;

/// The error messages of the toml crate that quote nothing.
const KNOWN_PROBLEMS: [&str; 10] = [
    "string values must be quoted",
    "missing opening quote",
    "missing comma between array elements",
    "extra comma in array",
    "unclosed array",
    "unclosed table",
    "unclosed inline table",
    "key with no value",
    "invalid unquoted key",
    "extra `=`",
];
const TABLES: &str = "Write one table a transport, as in [transports.transactional].";

/// The configuration of one transport, a table `[transports.NAME]`.
pub struct TransportConfig {
    /// The name, `[a-z][a-z0-9_-]{0,62}`.
    pub name: Arc<str>,
    /// The provider: webhook, ses, sendgrid, postmark, resend, mailgun, smtp, file or log.
    pub provider_name: &'static str,
    /// The databases that may use the transport; `None` for all.
    pub databases: Option<Vec<String>>,
    /// The configuration of the state machine.
    pub delivery: DeliveryConfig,
    /// The protocol.
    pub method: Method,
    /// The same as before if neither the table nor a file that it names has changed.
    pub state: SectionState,
}

/// The protocol of a transport.
pub enum Method {
    /// Requests to an HTTP provider.
    Http {
        /// The provider.
        provider: Arc<dyn Provider>,
        /// The options of the HTTP client.
        options: Box<ClientOptions>,
    },
    /// One message at a time, without HTTP.
    Single(Arc<Single>),
}

impl TransportConfig {
    /// Whether this database may use the transport.
    pub fn serves(&self, database: &str) -> bool {
        serves(self.databases.as_deref(), database)
    }
}

/// What receives the events of a transport.
pub struct TransportEvents {
    /// The name of the transport.
    pub name: String,
    /// The databases that may use the transport; `None` for all.
    databases: Option<Vec<String>>,
    /// `None` if the file does not say how events are verified.
    pub receiver: Option<Receiver>,
}

impl TransportEvents {
    /// Whether this database may use the transport.
    pub fn serves(&self, database: &str) -> bool {
        serves(self.databases.as_deref(), database)
    }
}

fn serves(databases: Option<&[String]>, database: &str) -> bool {
    databases.is_none_or(|names| names.iter().any(|name| name == database))
}

/// Reads and checks the file and all files that it names; their names are relative to its directory. The transports are
/// in the order of the file.
///
/// # Errors
/// The first error found.
pub fn load(path: &Path) -> Result<Vec<TransportConfig>, ConfigError> {
    in_file(path, parse)
}

/// Reads from the file how the events of each transport are verified, without the credentials for sending and without
/// certificates.
///
/// # Errors
/// The first error found among the keys that it reads.
pub fn load_events(path: &Path) -> Result<Vec<TransportEvents>, ConfigError> {
    in_file(path, |content, base| {
        sections(content, base, |section| {
            let provider = section.provider()?;
            section.check_names(provider)?;
            Ok(TransportEvents {
                name: section.name.to_owned(),
                databases: databases(section)?,
                receiver: section.receiver(provider)?,
            })
        })
    })
}

/// Parses a transports file with this content in the directory `base`.
///
/// # Errors
/// The first error found.
pub fn parse(content: &str, base: &Path) -> Result<Vec<TransportConfig>, ConfigError> {
    let mut system = System::default();
    sections(content, base, |section| build(section, &mut system))
}

fn in_file<T>(
    path: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let parsed = || {
        let (content, _) = secret_file::read(path).map_err(ConfigError::of_file)?;
        let content = std::str::from_utf8(&content).map_err(|error| {
            let before = content.iter().take(error.valid_up_to());
            let line = 1 + before.filter(|&&byte| byte == b'\n').count();
            ConfigError::new(
                line,
                "this is not UTF-8".to_owned(),
                "Write the file in UTF-8.",
            )
        })?;
        parse(content, path.parent().unwrap_or(Path::new("")))
    };
    parsed().map_err(|error| error.in_file(path))
}

/// What `read` makes of each transport's table.
fn sections<T>(
    content: &str,
    base: &Path,
    mut read: impl FnMut(&Section<'_>) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    let file = DeTable::parse(content).map_err(|error| syntax_error(content, &error))?;
    let mut tables = Vec::new();
    for (name, value) in file.get_ref() {
        let line = line_of(content, name.span().start);
        if name.get_ref() != "transports" {
            let problem = "this key is unknown outside of a transport".to_owned();
            return Err(ConfigError::new(line, problem, TABLES));
        }
        let DeValue::Table(table) = value.get_ref() else {
            let problem = "transports is not a table".to_owned();
            return Err(ConfigError::new(line, problem, TABLES));
        };
        tables.extend(table);
    }
    tables.sort_unstable_by_key(|(name, _)| name.span().start);
    let mut transports = Vec::new();
    for (name, value) in tables {
        let line = line_of(content, name.span().start);
        if !values::is_name(name.get_ref()) {
            let problem = "this is no name for a transport".to_owned();
            let hint = "Use small letters, digits, - and _, a letter first, 63 of them at most.";
            return Err(ConfigError::new(line, problem, hint));
        }
        let DeValue::Table(table) = value.get_ref() else {
            let problem = format!("transport \"{}\" is not a table", name.get_ref());
            return Err(ConfigError::new(line, problem, TABLES));
        };
        transports.push(read(&Section::new(content, base, name, table))?);
    }
    Ok(transports)
}

fn syntax_error(content: &str, error: &toml::de::Error) -> ConfigError {
    let line = line_of(content, error.span().map_or(0, |span| span.start));
    let said = error.message();
    if said.starts_with("duplicate key") {
        let problem = "this key or table is there twice".to_owned();
        return ConfigError::new(line, problem, "Keep one of the two.");
    }
    let known = KNOWN_PROBLEMS
        .into_iter()
        .find(|known| said.split(',').next() == Some(known));
    let problem = known.map_or_else(
        || "this is not TOML".to_owned(),
        |known| format!("this is not TOML: {known}"),
    );
    ConfigError::new(
        line,
        problem,
        "Write key = \"value\", numbers without quotes, and a transport's name in a line of its own as in [transports.transactional].",
    )
}

fn build(section: &Section<'_>, system: &mut System) -> Result<TransportConfig, ConfigError> {
    let provider_name = section.provider()?;
    section.check_names(provider_name)?;
    let state = section.state();
    let from = section.text("from")?.unwrap_or("").trim();
    let made = method::make(section, provider_name, from, system)?;
    let delivery = DeliveryConfig {
        capabilities: made.capabilities,
        concurrency: section
            .concurrency()?
            .unwrap_or(made.concurrency)
            .unsigned_abs() as usize,
        rate: section.read("rate", "a number and a unit", Rate::parse)?,
        max_ambiguous: section
            .number("max_ambiguous", 0..=100)?
            .unwrap_or(MAX_AMBIGUOUS),
        has_events: section.receiver(provider_name)?.is_some(),
        allow_from: allow_from(section, from)?,
        account: [section.name, provider_name, &made.account].join("\n"),
    };
    Ok(TransportConfig {
        name: section.name.into(),
        provider_name,
        databases: databases(section)?,
        delivery,
        method: made.method,
        state,
    })
}

fn databases(section: &Section<'_>) -> Result<Option<Vec<String>>, ConfigError> {
    section.list("databases", "the name of a database", |name| {
        (!name.is_empty()).then(|| name.to_owned())
    })
}

/// The allowed sender addresses; by default the address of `from`.
fn allow_from(section: &Section<'_>, from: &str) -> Result<Vec<String>, ConfigError> {
    let own = match from {
        "" => Vec::new(),
        from => {
            let mailbox = mailbox::sender(from).map_err(|invalid| section.invalid(&invalid))?;
            vec![mailbox.address().to_owned()]
        }
    };
    let what = "an address or \"*@\" and a domain";
    let given = section.list("allow_from", what, values::pattern)?;
    Ok(given.unwrap_or(own))
}

#[cfg(test)]
mod tests;
