//! Rows of the connection as those of a claimed mail.

use std::error::Error;
use std::str::Utf8Error;

use mailroom_core::row::{ReadError, Row};
use tokio_postgres::types::FromSql;

use crate::database_error::DatabaseError;

/// A row of `claim_mail.sql` or `attachments.sql`. In a SQL_ASCII database a text may contain any bytes.
pub struct ClaimedRow(pub tokio_postgres::Row);

impl ClaimedRow {
    fn get<'a, T: FromSql<'a>>(&'a self, column: &str) -> Result<Option<T>, DatabaseError> {
        Ok(self.0.try_get(column)?)
    }

    fn characters<'a, T: FromSql<'a>>(
        &'a self,
        column: &'static str,
    ) -> Result<Option<T>, ReadError<DatabaseError>> {
        self.0.try_get(column).map_err(|error| {
            if error.source().is_some_and(<dyn Error>::is::<Utf8Error>) {
                ReadError::NotText(column)
            } else {
                ReadError::Row(error.into())
            }
        })
    }
}

impl Row for ClaimedRow {
    type Error = DatabaseError;

    fn unexpected_null(column: &str) -> DatabaseError {
        DatabaseError::unexpected(&format!("null in the column {column} of a claimed mail"))
    }

    fn boolean(&self, column: &'static str) -> Result<Option<bool>, DatabaseError> {
        self.get(column)
    }

    fn integer(&self, column: &'static str) -> Result<Option<i32>, DatabaseError> {
        self.get(column)
    }

    fn bigint(&self, column: &'static str) -> Result<Option<i64>, DatabaseError> {
        self.get(column)
    }

    fn double(&self, column: &'static str) -> Result<Option<f64>, DatabaseError> {
        self.get(column)
    }

    fn text(&self, column: &'static str) -> Result<Option<String>, ReadError<DatabaseError>> {
        self.characters(column)
    }

    fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.get(column)
    }

    fn texts(&self, column: &'static str) -> Result<Option<Vec<String>>, ReadError<DatabaseError>> {
        self.characters(column)
    }
}
