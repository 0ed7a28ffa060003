//! Credentials for a provider, as read by `config`. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::invalid::Invalid;

/// The credentials that identify an account. Another account does not recognize a repeated request.
const IDENTITY: [&str; 3] = ["api_key", "access_key_id", "secret"];

/// The credentials of one transport, by key. No `Debug`; zeroed when dropped.
#[derive(Default)]
pub struct Credentials {
    values: Vec<(&'static str, Zeroizing<String>)>,
}

impl Credentials {
    /// Adds a value. A key may have several.
    pub fn put(&mut self, key: &'static str, value: Zeroizing<String>) {
        self.values.push((key, value));
    }

    /// The values of a key, in the order of the file.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.values
            .iter()
            .filter(move |(name, _)| *name == key)
            .map(|(_, value)| value.as_str())
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// The first value of a required key.
    ///
    /// # Errors
    /// The key that is missing.
    pub fn require(&self, key: &'static str) -> Result<&str, Invalid> {
        self.get(key).ok_or_else(|| Invalid::missing(key))
    }

    /// Identifies the account without revealing its key.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for key in IDENTITY {
            for value in self.all(key) {
                hash.update(key.as_bytes());
                hash.update([0]);
                hash.update(value.as_bytes());
                hash.update([0]);
            }
        }
        STANDARD.encode(hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&'static str, &str)]) -> Credentials {
        let mut credentials = Credentials::default();
        for (key, value) in values {
            credentials.put(key, Zeroizing::new((*value).to_owned()));
        }
        credentials
    }

    #[test]
    fn values_by_key_in_order() {
        let credentials = of(&[("secret", "1"), ("domain", "d"), ("secret", "2")]);
        assert_eq!(credentials.all("secret").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(credentials.get("secret"), Some("1"));
        assert_eq!(
            credentials.require("api_key"),
            Err(Invalid::missing("api_key"))
        );
    }

    #[test]
    fn the_digest_is_of_the_account_and_shows_nothing() {
        let digest = |values: &[(&'static str, &str)]| of(values).digest();
        let one = digest(&[("api_key", "hunter2"), ("domain", "a.example")]);
        assert_eq!(one, digest(&[("api_key", "hunter2")]));
        assert_ne!(one, digest(&[("api_key", "hunter3")]));
        assert_ne!(
            digest(&[("secret", "1"), ("secret", "2")]),
            digest(&[("secret", "12")])
        );
        assert!(!one.contains("hunter"));
    }
}
