//! An invalid setting of a transport: which key, and what is wrong with its value. Pure.

use std::fmt;

/// Why a transport cannot be built from its settings. It never contains a value, because the value may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The key in the transports file, without `_file`.
    pub key: &'static str,
    /// The error, for example `is missing`.
    pub problem: String,
}

impl Invalid {
    /// An error about this key.
    pub fn new(key: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self { key, problem }
    }

    /// The key is required and is not given.
    pub fn missing(key: &'static str) -> Self {
        Self::new(key, "is missing")
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.problem)
    }
}

impl std::error::Error for Invalid {}

/// For a message that cannot be sent because of a setting.
impl From<Invalid> for String {
    fn from(invalid: Invalid) -> Self {
        invalid.to_string()
    }
}
