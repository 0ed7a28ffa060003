//! Why a transaction of the worker failed.

use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;
use pgrx::spi::SpiError;

use crate::pg::{catalog, log};
use crate::worker::sqlstate;
use mailroom_core::mask::mask_error;

/// Why a transaction of the worker failed.
pub enum Failure {
    /// The extension that this session attached to no longer exists.
    ExtensionGone,
    /// A session restores a dump; no row may be changed before it ends.
    Restoring,
    /// PostgreSQL or the library raised an error. DETAIL and CONTEXT are not kept, because they may quote rows.
    Refused {
        /// Five characters.
        sqlstate: String,
        /// The primary message.
        message: String,
        /// The HINT, if there is one.
        hint: Option<String>,
        /// When the transaction began, in microseconds since 2000-01-01.
        began: Option<i64>,
    },
}

impl Failure {
    pub fn refused(code: PgSqlErrorCode, message: &str, hint: Option<&str>) -> Self {
        Self::Refused {
            sqlstate: catalog::sqlstate(code),
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
            began: None,
        }
    }

    /// Whether this is [`Failure::ExtensionGone`].
    pub fn is_extension_gone(&self) -> bool {
        matches!(self, Self::ExtensionGone)
    }

    /// The SQLSTATE; empty if no statement failed.
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::ExtensionGone | Self::Restoring => "",
            Self::Refused { sqlstate, .. } => sqlstate,
        }
    }

    /// Whether the row that was written may have caused the error.
    pub fn is_row_at_fault(&self) -> bool {
        match self {
            Self::ExtensionGone | Self::Restoring => false,
            Self::Refused { sqlstate, .. } => sqlstate::is_row_at_fault(sqlstate),
        }
    }

    /// Writes one WARNING to the server's log.
    pub fn warn(&self, what: &str) {
        match self {
            Self::ExtensionGone => warning!("{what}: the extension is gone"),
            Self::Restoring => warning!("{what}: a dump is being restored"),
            Self::Refused {
                sqlstate,
                message,
                hint,
                ..
            } => {
                let detail = format!("SQLSTATE {sqlstate}.");
                log::warn(
                    &format!("{what}: {message}"),
                    &detail,
                    hint.as_deref().unwrap_or_default(),
                );
            }
        }
    }
}

impl From<CaughtError> for Failure {
    fn from(error: CaughtError) -> Self {
        let (CaughtError::PostgresError(report)
        | CaughtError::ErrorReport(report)
        | CaughtError::RustPanic {
            ereport: report, ..
        }) = &error;
        // The message of an application's trigger may quote the row.
        let message = mask_error(report.message());
        let hint = report.hint().map(mask_error);
        Self::refused(report.sql_error_code(), &message, hint.as_deref())
    }
}

impl From<SpiError> for Failure {
    fn from(error: SpiError) -> Self {
        Self::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &error.to_string(),
            None,
        )
    }
}
