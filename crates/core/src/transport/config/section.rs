//! The table of one transport: its keys as typed values, or an error with line and hint.
//!
//! No text here quotes a value or an unknown name: either may be a secret in the wrong place.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use zeroize::Zeroizing;

use super::error::{ConfigError, file_hint};
use super::{keys, values};
use crate::events::{EVENT_SECRET, Receiver};
use crate::secret_file::{self, Fingerprint};
use crate::transport::credentials::Credentials;
use crate::transport::invalid::Invalid;

/// Maximum number of secrets of one kind: during a rotation there are two.
const ROTATING: usize = 2;

/// The table of one transport.
pub(super) struct Section<'a> {
    /// The whole file.
    content: &'a str,
    /// The directory that file names are relative to.
    base: &'a Path,
    pub(super) name: &'a str,
    /// The position of its header.
    line: usize,
    table: &'a DeTable<'a>,
}

/// Identifies what a table and the files that it names say, without revealing it.
#[derive(Clone, PartialEq, Eq)]
pub struct SectionState {
    table: [u8; 32],
    files: Vec<Option<Fingerprint>>,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        content: &'a str,
        base: &'a Path,
        name: &'a Spanned<DeString<'_>>,
        table: &'a DeTable<'a>,
    ) -> Self {
        Self {
            content,
            base,
            name: name.get_ref(),
            line: line_of(content, name.span().start),
            table,
        }
    }

    /// The state of the table and its files. To be taken before the files are read: what changes meanwhile is then noticed
    /// the next time.
    pub(super) fn state(&self) -> SectionState {
        let mut hash = Sha256::new();
        let mut files = Vec::new();
        for (name, value) in self.table {
            let written = self.content.get(value.span()).unwrap_or_default();
            for part in [name.get_ref().as_ref(), written] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
            if let Some(path) = value.get_ref().as_str()
                && name.get_ref().ends_with(keys::FILE)
            {
                files.push(Fingerprint::at(&self.base.join(path)));
            }
        }
        SectionState {
            table: hash.finalize().into(),
            files,
        }
    }

    /// An error in the line of this key, or of the header if the key is missing.
    pub(super) fn error(&self, key: &str, problem: &str) -> ConfigError {
        self.error_with(key, problem, keys::hint(key))
    }

    fn error_with(&self, key: &str, problem: &str, hint: impl Into<String>) -> ConfigError {
        let line = self.lookup(key).map_or(self.line, |value| self.at(value));
        self.error_at(line, problem, hint)
    }

    fn error_at(&self, line: usize, problem: &str, hint: impl Into<String>) -> ConfigError {
        ConfigError::new(
            line,
            format!("transport \"{}\": {problem}", self.name),
            hint,
        )
    }

    /// An error in the line of the invalid key, or of the key that names the file with its value.
    pub(super) fn invalid(&self, invalid: &Invalid) -> ConfigError {
        let key = invalid.key;
        let in_file = format!("{key}{}", keys::FILE);
        let several = keys::plural(key).unwrap_or(key);
        let several_in_file = format!("{several}{}", keys::FILE);
        let given = [key, &in_file, several, &several_in_file]
            .into_iter()
            .find(|name| self.lookup(name).is_some());
        self.error_with(given.unwrap_or(key), &invalid.to_string(), keys::hint(key))
    }

    fn lookup(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    fn at(&self, value: &Spanned<DeValue<'_>>) -> usize {
        line_of(self.content, value.span().start)
    }

    /// The provider.
    pub(super) fn provider(&self) -> Result<&'static str, ConfigError> {
        let Some(text) = self.text("provider")? else {
            return Err(self.error("provider", "provider is missing"));
        };
        keys::providers()
            .find(|name| *name == text)
            .ok_or_else(|| self.error("provider", "provider is not one that mailroom knows"))
    }

    /// Refuses keys that this provider does not accept.
    pub(super) fn check_names(&self, provider: &'static str) -> Result<(), ConfigError> {
        let mut names: Vec<_> = self.table.keys().collect();
        names.sort_unstable_by_key(|name| name.span().start);
        for name in names {
            let line = line_of(self.content, name.span().start);
            let known = || format!("Keys of {provider}: {}.", keys::names(provider).join(", "));
            match keys::find(name.get_ref()) {
                Some(key) if key.is_of(provider) => {}
                Some(key) => {
                    let problem = format!("{} is no key of provider {provider}", key.name);
                    return Err(self.error_at(line, &problem, known()));
                }
                None => {
                    let hint = match keys::nearest(name.get_ref(), provider) {
                        Some(meant) => format!("Perhaps {meant} was meant. {}", known()),
                        None => known(),
                    };
                    return Err(self.error_at(line, "this key is unknown", hint));
                }
            }
        }
        Ok(())
    }

    /// A non-empty string.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        let Some(value) = self.lookup(key) else {
            return Ok(None);
        };
        let text = value
            .get_ref()
            .as_str()
            .ok_or_else(|| self.error(key, &format!("{key} is not a string")))?;
        if text.trim().is_empty() {
            return Err(self.error(key, &format!("{key} is empty")));
        }
        Ok(Some(text))
    }

    /// A string, parsed by `read`.
    pub(super) fn read<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let value = read(text).ok_or_else(|| self.error(key, &format!("{key} is not {what}")))?;
        Ok(Some(value))
    }

    /// A non-empty array of strings, each parsed by `read`.
    pub(super) fn list<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&'a str) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ConfigError> {
        let Some(value) = self.lookup(key) else {
            return Ok(None);
        };
        let items = value
            .get_ref()
            .as_array()
            .ok_or_else(|| self.error(key, &format!("{key} is not an array")))?;
        if items.is_empty() {
            return Err(self.error(key, &format!("{key} is empty")));
        }
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let read = item.get_ref().as_str().and_then(&read);
            let number = index + 1;
            list.push(read.ok_or_else(|| {
                let problem = format!("item {number} of {key} is not {what}");
                self.error_at(self.at(item), &problem, keys::hint(key))
            })?);
        }
        Ok(Some(list))
    }

    /// An integer.
    pub(super) fn number(
        &self,
        key: &str,
        range: RangeInclusive<i32>,
    ) -> Result<Option<i32>, ConfigError> {
        let Some(value) = self.lookup(key) else {
            return Ok(None);
        };
        let number = value.get_ref().as_integer().and_then(|integer| {
            let number = i32::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            range.contains(&number).then_some(number)
        });
        let (least, most) = (range.start(), range.end());
        let problem = format!("{key} is not a whole number from {least} to {most}");
        number.map(Some).ok_or_else(|| self.error(key, &problem))
    }

    /// The maximum number of concurrent requests, if it is given.
    pub(super) fn concurrency(&self) -> Result<Option<i32>, ConfigError> {
        self.number("concurrency", 1..=1_000)
    }

    /// A duration.
    pub(super) fn duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, ConfigError> {
        self.read(key, "a time with a unit, within its bounds", |text| {
            values::duration(text).filter(|time| range.contains(time))
        })
    }

    /// The path of a file.
    pub(super) fn path(&self, key: &str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text(key)?.map(|name| self.base.join(name)))
    }

    /// What receives the events of this provider, if the section says how they are verified.
    pub(super) fn receiver(&self, provider: &str) -> Result<Option<Receiver>, ConfigError> {
        let secrets = self.secrets(EVENT_SECRET)?;
        let topic = self.read("event_topic", PRINTABLE, printable)?;
        if secrets.is_empty() && topic.is_none() {
            return Ok(None);
        }
        let topic = topic.as_ref().map(|topic| topic.as_str());
        let receiver = Receiver::new(self.name, provider, &secrets, topic);
        receiver.map(Some).map_err(|invalid| self.invalid(&invalid))
    }

    /// All credentials that this provider uses for sending and the section has.
    pub(super) fn credentials(&self, provider: &str) -> Result<Credentials, ConfigError> {
        let mut credentials = Credentials::default();
        for key in keys::KEYS.iter().filter(|key| key.is_of(provider)) {
            if key.name == EVENT_SECRET {
                continue;
            }
            if key.is_secret {
                for value in self.secrets(key.name)? {
                    credentials.put(key.name, value);
                }
            } else if matches!(
                key.name,
                "region" | "configuration_set" | "domain" | "message_stream"
            ) && let Some(value) = self.read(key.name, PRINTABLE, printable)?
            {
                credentials.put(key.name, value);
            }
        }
        Ok(credentials)
    }

    /// A secret, by any of its keys.
    fn secrets(&self, name: &'static str) -> Result<Vec<Zeroizing<String>>, ConfigError> {
        let in_file = format!("{name}{}", keys::FILE);
        let several = keys::plural(name).unwrap_or("");
        let several_in_file = format!("{several}{}", keys::FILE);
        let all = [name, &in_file, several, &several_in_file];
        let mut given = all.into_iter().filter(|key| self.lookup(key).is_some());
        let (Some(key), other) = (given.next(), given.next()) else {
            return Ok(Vec::new());
        };
        if let Some(other) = other {
            let problem = format!("{other} is given besides {key}");
            return Err(self.error_with(other, &problem, "Keep one of the two."));
        }
        // A person chooses a password, also that of a webhook; a provider issues the other secrets.
        let form: Form = if name == "password" || name == EVENT_SECRET {
            (values::TEXT, values::text)
        } else {
            (PRINTABLE, printable)
        };
        let values = if key == name {
            vec![self.read(key, form.0, form.1)?]
        } else if key == several {
            let list = self.list(key, form.0, form.1)?.unwrap_or_default();
            list.into_iter().map(Some).collect()
        } else {
            self.in_file(key, form, key == several_in_file)?
        };
        if values.len() > ROTATING {
            let problem = format!("{key} has more than {ROTATING} secrets");
            return Err(self.error(key, &problem));
        }
        Ok(values.into_iter().flatten().collect())
    }

    /// The contents of the file that this key names.
    fn in_file(
        &self,
        key: &str,
        (what, read): Form,
        is_list: bool,
    ) -> Result<Vec<Option<Zeroizing<String>>>, ConfigError> {
        let Some(path) = self.path(key)? else {
            return Ok(Vec::new());
        };
        let (content, _) = secret_file::read(&path).map_err(|problem| {
            let text = format!("the file that {key} names {problem}");
            self.error_with(key, &text, file_hint(problem))
        })?;
        let text = std::str::from_utf8(content.trim_ascii()).unwrap_or("");
        let parts: Vec<&str> = if is_list {
            text.lines().map(str::trim).collect()
        } else {
            vec![text]
        };
        let values: Vec<_> = parts.into_iter().map(read).collect();
        if values.is_empty() || values.iter().any(Option::is_none) {
            let problem = format!("what is in the file that {key} names is not {what}");
            let hint = "The file holds the bare value, without quotes and without its name.";
            return Err(self.error_with(key, &problem, hint));
        }
        Ok(values)
    }
}

/// The form of a value in words, and its parser.
type Form = (&'static str, fn(&str) -> Option<Zeroizing<String>>);

/// The form of a credential that a provider issued.
pub(super) const PRINTABLE: &str = "printable ASCII without spaces and quotes";

pub(super) fn printable(value: &str) -> Option<Zeroizing<String>> {
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\'';
    // One allocation of the final size leaves no copy that is not zeroed.
    (!value.is_empty() && value.bytes().all(fits)).then(|| Zeroizing::new(value.to_owned()))
}

/// The line of this byte, counted from 1.
pub(super) fn line_of(content: &str, byte: usize) -> usize {
    let before = content.as_bytes().iter().take(byte);
    1 + before.filter(|&&byte| byte == b'\n').count()
}
