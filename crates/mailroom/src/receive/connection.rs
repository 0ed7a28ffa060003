//! A connection over which events are reported.
//!
//! As over those of `mailroom send`, no statement is prepared by name and no setting outlasts its transaction, so that behind
//! a pooler each transaction may run in another server session.

use std::borrow::Cow;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::conninfo::Target;
use crate::database_error::DatabaseError;
use crate::session::connect::connect;
use crate::session::{
    CLOSING, Extension, LOCK_TIMEOUT, NO_ANSWER, Parameter, find_extension, in_transaction,
    search_path, standby,
};

/// Maximum duration of the statements of a transaction.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum duration of a transaction, whose commit may wait for standbys. Then the connection is given up.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a database cannot be used.
pub enum Failure {
    /// The role may not report events.
    MayNotReport(DatabaseError),
    /// Any other reason, which may pass.
    Other(DatabaseError),
}

impl Failure {
    pub fn error(&self) -> &DatabaseError {
        match self {
            Self::MayNotReport(error) | Self::Other(error) => error,
        }
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::Other(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Other(error.into())
    }
}

/// What a report led to.
pub struct Recorded {
    /// How many events were news.
    pub news: i32,
    /// How long the database remembers events, if it says so.
    pub retention: Option<Duration>,
}

/// A connection to a database that takes events.
pub struct Connection {
    client: Client,
    task: JoinHandle<()>,
    /// The value of search_path.
    path: String,
    is_utf8: bool,
    /// The name of the database, as the server reports it.
    pub database: String,
    /// How long the database remembers events, if it said so.
    pub retention: Option<Duration>,
}

impl Connection {
    /// Connects, and checks the extension and the privileges of the role.
    ///
    /// # Errors
    /// Why the database cannot be used.
    pub async fn open(target: &Target) -> Result<Self, Failure> {
        let connected = connect(target).await?;
        let mut events = connected.events;
        // A pooler may forward notifications that another client has asked for.
        spawn_local(async move { while events.recv().await.is_some() {} });
        let found = timeout(STATEMENT_TIMEOUT, find(&connected.client)).await;
        let (Extension { schema, database }, is_utf8) =
            found.unwrap_or_else(|_| Err(DatabaseError::lost(NO_ANSWER).into()))?;
        let mut connection = Self {
            client: connected.client,
            task: connected.connection,
            path: search_path(&schema),
            is_utf8,
            database,
            retention: None,
        };
        let asked = connection.transaction(include_str!("../../sql/retention.sql"), &[]);
        connection.retention = duration(asked.await?.try_get(0)?);
        Ok(connection)
    }

    /// Whether the connection has not ended.
    pub fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Records a report, a JSON array of events, in a transaction.
    ///
    /// # Errors
    /// Nothing was recorded, or that is not known because the connection was lost.
    pub async fn report(&self, transport: &str, report: &str) -> Result<Recorded, DatabaseError> {
        let report = fit(report, self.is_utf8);
        let parameters: [Parameter<'_>; 2] = [(&transport, Type::TEXT), (&report, Type::TEXT)];
        let statement = include_str!("../../sql/report.sql");
        let row = self.transaction(statement, &parameters).await?;
        Ok(Recorded {
            news: row.try_get(0)?,
            retention: duration(row.try_get(1)?),
        })
    }

    /// Unsubscribes whose token this is; returns whether there is one.
    ///
    /// # Errors
    /// That is not known, or it could not be done.
    pub async fn unsubscribe(&self, token: &str) -> Result<bool, DatabaseError> {
        let statement = include_str!("../../sql/unsubscribe.sql");
        let row = self.transaction(statement, &[(&token, Type::TEXT)]).await?;
        Ok(row.try_get(0)?)
    }

    /// Runs a statement that returns one row, in a transaction.
    async fn transaction(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, DatabaseError> {
        let limits = (STATEMENT_TIMEOUT, LOCK_TIMEOUT);
        let work = in_transaction(&self.client, &self.path, limits, async |client| {
            let rows = client.query_typed(statement, parameters).await?;
            let row = rows.into_iter().next();
            row.ok_or_else(|| DatabaseError::unexpected("no row"))
        });
        let done = timeout(TRANSACTION_TIMEOUT, work).await;
        done.unwrap_or_else(|_| Err(DatabaseError::lost(NO_ANSWER)))
    }

    /// Closes the connection.
    pub async fn close(self) {
        drop(self.client);
        let _ = timeout(CLOSING, self.task).await;
    }
}

/// The extension, and whether the database's encoding is UTF-8.
async fn find(client: &Client) -> Result<(Extension, bool), Failure> {
    let extension = find_extension(client).await?;
    let rights = client.query_typed(include_str!("../../sql/receiver_rights.sql"), &[]);
    let rights = rights.await?.into_iter().next();
    let rights = rights.ok_or_else(|| DatabaseError::unexpected("no row"))?;
    let (may_report, is_standby): (bool, bool) = (rights.try_get(0)?, rights.try_get(1)?);
    let (role, encoding): (String, String) = (rights.try_get(2)?, rights.try_get(3)?);
    if !may_report {
        return Err(Failure::MayNotReport(DatabaseError::unusable(
            format!("role \"{role}\" may not report events"),
            "GRANT mailroom_receiver to it.",
        )));
    }
    if is_standby {
        return Err(standby().into());
    }
    Ok((extension, encoding == "UTF8"))
}

fn duration(seconds: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds?).ok()
}

/// The report in characters that the database can store. All of its syntax is ASCII.
fn fit(report: &str, is_utf8: bool) -> Cow<'_, str> {
    if is_utf8 || report.is_ascii() {
        return Cow::Borrowed(report);
    }
    let known = |c: char| if c.is_ascii() { c } else { '?' };
    Cow::Owned(report.chars().map(known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_another_encoding_gets_ascii() {
        assert_eq!(fit(r#"{"a": "é→"}"#, true), r#"{"a": "é→"}"#);
        assert_eq!(fit(r#"{"a": "é→"}"#, false), r#"{"a": "??"}"#);
        assert_eq!(fit("[]", false), "[]");
    }
}
