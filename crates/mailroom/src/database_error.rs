//! Errors of a database connection.

use mailroom_core::deliver::store::{ErrorKind, LOCK_NOT_AVAILABLE, StoreError};
use mailroom_core::mask::mask_error;

use crate::log::Log;

/// Classes of errors that would occur with any other row too: connection, transaction state, authorization, rollback,
/// access rule, resources, limits, prerequisites, intervention, system, configuration, internal. As `_is_row_at_fault`.
const NOT_OF_THE_ROW: [&str; 12] = [
    "08", "25", "28", "40", "42", "53", "54", "55", "57", "58", "F0", "XX",
];
/// Errors after which the connection is useless: it broke, the server shuts down, it became a standby (0A000 is the
/// error of BEGIN READ WRITE in recovery), or the extension or its schema does not exist.
const OF_THE_CONNECTION: [&str; 5] = ["08", "57P", "25006", "0A000", "3F000"];
const OF_THE_EXTENSION: [&str; 3] = ["42P01", "42883", "42704"];

/// An error.
#[derive(Clone, Debug)]
pub struct DatabaseError {
    kind: ErrorKind,
    sqlstate: String,
    message: String,
    hint: String,
    refuses_role: bool,
    log: Option<Log>,
}

impl DatabaseError {
    /// There is no connection, or only a useless one.
    pub fn lost(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Gone,
            sqlstate: String::new(),
            message: message.into(),
            hint: String::new(),
            refuses_role: false,
            log: None,
        }
    }

    /// As above, with a hint.
    pub fn unusable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            hint: hint.into(),
            ..Self::lost(message)
        }
    }

    /// Gives the error a hint if it has none.
    pub fn or_hint(mut self, hint: &str) -> Self {
        if self.hint.is_empty() {
            self.hint = hint.to_owned();
        }
        self
    }

    /// The failures of attempts to connect, each with the name of the attempt, as one.
    pub fn of_attempts(mut failures: Vec<(String, Self)>) -> Self {
        if failures.len() == 1
            && let Some((_, failure)) = failures.pop()
        {
            return failure;
        }
        let each = failures
            .iter()
            .map(|(name, failure)| format!("{name}: {failure}"));
        let message = each.collect::<Vec<_>>().join("; ");
        let refuses_role = failures.last().is_some_and(|(_, last)| last.refuses_role);
        let mut hints = failures.into_iter().map(|(_, failure)| failure.hint);
        let hint = hints.find(|hint| !hint.is_empty());
        Self {
            refuses_role,
            ..Self::unusable(message, hint.unwrap_or_default())
        }
    }

    /// Whether a server refused the role, its password or its address.
    pub fn refuses_role(&self) -> bool {
        self.refuses_role
    }

    /// The server returned an unexpected result.
    pub fn unexpected(what: &str) -> Self {
        Self {
            kind: ErrorKind::Other,
            ..Self::lost(format!("the server returned {what}"))
        }
    }

    /// Makes [`StoreError::warn`] write to this log.
    pub fn into_log(self, log: &Log) -> Self {
        Self {
            log: Some(log.clone()),
            ..self
        }
    }

    /// The same error of a connection that was found to work, and of a database with the extension.
    pub fn of_statement(self) -> Self {
        Self {
            kind: kind_of_statement(&self.sqlstate),
            ..self
        }
    }

    /// Whether the connection is useless.
    pub fn is_gone(&self) -> bool {
        self.kind == ErrorKind::Gone
    }

    /// The SQLSTATE, or an empty string if the error is not from the server.
    pub fn sqlstate(&self) -> &str {
        &self.sqlstate
    }

    /// The hint; may be empty.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl std::fmt::Display for DatabaseError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)?;
        if !self.sqlstate.is_empty() {
            write!(out, " [{}]", self.sqlstate)?;
        }
        Ok(())
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        // DETAIL and CONTEXT are dropped, because they may quote rows.
        if let Some(reported) = error.as_db_error() {
            let sqlstate = reported.code().code().to_owned();
            return Self {
                kind: kind(&sqlstate),
                // A trigger of the application may quote a row.
                message: mask_error(reported.message()),
                hint: mask_error(reported.hint().unwrap_or_default()),
                refuses_role: sqlstate.starts_with("28"),
                sqlstate,
                log: None,
            };
        }
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self::lost(message)
    }
}

fn kind(sqlstate: &str) -> ErrorKind {
    let is_of = |classes: &[&str]| classes.iter().any(|class| sqlstate.starts_with(class));
    if is_of(&OF_THE_CONNECTION) || is_of(&OF_THE_EXTENSION) {
        ErrorKind::Gone
    } else {
        kind_of_statement(sqlstate)
    }
}

/// The kind if the connection and the extension are there.
fn kind_of_statement(sqlstate: &str) -> ErrorKind {
    if sqlstate == LOCK_NOT_AVAILABLE {
        ErrorKind::Locked
    } else if NOT_OF_THE_ROW
        .iter()
        .any(|class| sqlstate.starts_with(class))
    {
        ErrorKind::Other
    } else {
        ErrorKind::Row
    }
}

impl StoreError for DatabaseError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn warn(&self, what: &str) {
        if let Some(log) = &self.log {
            log.warn(&format!("{what}: {self}"), "", &self.hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_say_whose_fault_it_is() {
        for (sqlstate, expected) in [
            ("08006", ErrorKind::Gone),
            ("57P01", ErrorKind::Gone),
            ("25006", ErrorKind::Gone),
            ("3F000", ErrorKind::Gone),
            ("42883", ErrorKind::Gone),
            ("57014", ErrorKind::Other),
            ("55000", ErrorKind::Other),
            ("55P03", ErrorKind::Locked),
            ("42501", ErrorKind::Other),
            ("40001", ErrorKind::Other),
            ("23514", ErrorKind::Row),
            ("P0001", ErrorKind::Row),
            ("22P05", ErrorKind::Row),
        ] {
            assert_eq!(kind(sqlstate), expected, "{sqlstate}");
        }
    }
}
