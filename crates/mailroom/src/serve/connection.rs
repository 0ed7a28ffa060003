//! The connection of a session: one transaction for each request.

use std::time::{Duration, Instant};

use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_postgres::{Client, Row};

use super::cells::Cells;
use crate::conninfo::Target;
use crate::database_error::DatabaseError;
use crate::session::connect::{Refused, log_in};
use crate::session::{NO_ANSWER, Parameter, find_extension, in_sequence};

/// A transaction that reads cannot write, by any statement. It may run on a standby. An index is there for each
/// statement, and a plan without it is never meant.
const READ: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; \
     SET LOCAL enable_seqscan = off; \
     SET LOCAL idle_in_transaction_session_timeout = '5s'";
const WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
     SET CONSTRAINTS ALL IMMEDIATE; \
     SET LOCAL idle_in_transaction_session_timeout = '5s'";
/// Maximum duration of a statement that reads, and of one that writes.
const READ_TIME: Duration = Duration::from_secs(2);
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Maximum duration of a wait for a lock.
const LOCK_TIME: Duration = Duration::from_secs(1);
/// Maximum duration of a transaction. Then the connection is given up.
const TRANSACTION_TIME: Duration = Duration::from_secs(15);
/// How long a connection is kept without a request.
const IDLE: Duration = Duration::from_secs(60);
/// How long a connection is used, so that a role that may no longer log in is out after that time.
const AGE: Duration = Duration::from_secs(600);

/// The value of search_path: statements name the schema of the extension, as [`SCHEMA`]. A role that may create objects in
/// that schema could otherwise add an operator or a function that fits better than the one that is meant, and have it run
/// with the rights of the role that looks at the page.
const PATH: &str = "pg_catalog, pg_temp";
/// What stands for the schema of the extension in statements.
const SCHEMA: &str = "@extschema@";

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Why a request could not be done.
#[derive(Debug)]
pub enum Failure {
    /// The connection was lost.
    Gone(DatabaseError),
    /// There is no connection, so nothing was done.
    NotReached(DatabaseError),
    /// The role may no longer log in, or its password is another.
    LoggedOut(DatabaseError),
    /// The database refused a statement.
    Statement(Box<Statement>),
}

/// What the database says of a statement that it refused. The role that sees it is the one that ran it.
#[derive(Debug)]
pub struct Statement {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(reported) = error.as_db_error() else {
            return Self::Gone(error.into());
        };
        let sqlstate = reported.code().code();
        // The connection broke, or the server shuts down.
        if sqlstate.starts_with("08") || sqlstate.starts_with("57P") {
            return Self::Gone(error.into());
        }
        Self::Statement(Box::new(Statement {
            sqlstate: sqlstate.to_owned(),
            message: reported.message().to_owned(),
            detail: reported.detail().unwrap_or_default().to_owned(),
            hint: reported.hint().unwrap_or_default().to_owned(),
        }))
    }
}

/// Why a role was not logged in.
#[derive(Debug)]
pub enum NotOpened {
    /// The server asked for no password, or for one in clear text.
    Unsafe(Refused),
    /// The server refused the role or its password.
    Refused(DatabaseError),
    /// There is no connection, or no extension of this version.
    Unusable(DatabaseError),
}

/// The time of a transaction, and its time zone.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// In ISO 8601, with the offset.
    pub now: String,
    pub zone: String,
}

/// A connection as a role.
pub struct Connection {
    client: Client,
    /// The schema of the extension, as SQL writes it.
    schema: String,
    opened: Instant,
    used: Instant,
}

impl Connection {
    /// Connects to a target with role and password.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn open(target: &Target) -> Result<Self, NotOpened> {
        let connected = log_in(target).await.map_err(|(error, refused)| {
            match (refused, error.refuses_role()) {
                (Some(refused), _) => NotOpened::Unsafe(refused),
                (None, true) => NotOpened::Refused(error),
                (None, false) => NotOpened::Unusable(error),
            }
        })?;
        let mut events = connected.events;
        // A pooler may forward notifications that another client has asked for.
        spawn_local(async move { while events.recv().await.is_some() {} });
        let extension = timeout(TRANSACTION_TIME, find_extension(&connected.client)).await;
        let extension = extension
            .unwrap_or_else(|_| Err(DatabaseError::lost(NO_ANSWER)))
            .map_err(NotOpened::Unusable)?;
        let now = Instant::now();
        Ok(Self {
            client: connected.client,
            schema: extension.schema,
            opened: now,
            used: now,
        })
    }

    /// Whether another request may use it.
    pub fn is_usable(&self) -> bool {
        !self.client.is_closed() && self.used.elapsed() < IDLE && self.opened.elapsed() < AGE
    }

    /// The same after a request.
    pub fn after_use(self) -> Self {
        Self {
            used: Instant::now(),
            ..self
        }
    }

    /// Runs the statements of a request.
    ///
    /// # Errors
    /// The transaction was rolled back, or that is not known because the connection was lost.
    pub async fn transaction<R>(
        &self,
        access: Access,
        body: impl AsyncFnOnce(&Statements<'_>) -> Result<R, Failure>,
    ) -> Result<(R, Clock), Failure> {
        let (begin, limit) = match access {
            Access::Read => (READ, READ_TIME),
            Access::Write => (WRITE, WRITE_TIME),
        };
        let work = in_sequence(
            &self.client,
            begin,
            PATH,
            (limit, LOCK_TIME),
            async |client| {
                let statements = Statements {
                    client,
                    schema: &self.schema,
                };
                let clock = statements
                    .one(include_str!("../../sql/page/clock.sql"), &[])
                    .await?;
                let clock = Clock {
                    now: clock.text("now")?,
                    zone: clock.text("zone")?,
                };
                Ok((body(&statements).await?, clock))
            },
        );
        let done = timeout(TRANSACTION_TIME, work).await;
        done.unwrap_or_else(|_| Err(Failure::Gone(DatabaseError::lost(NO_ANSWER))))
    }
}

/// Runs statements in a transaction.
pub struct Statements<'a> {
    client: &'a Client,
    schema: &'a str,
}

impl Statements<'_> {
    /// The rows of a statement.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn all(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Cells>, Failure> {
        let statement = statement.replace(SCHEMA, self.schema);
        let rows: Vec<Row> = self.client.query_typed(&statement, parameters).await?;
        Ok(rows.into_iter().map(Cells::from).collect())
    }

    /// The row of a statement that returns one at most.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn maybe(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Cells>, Failure> {
        Ok(self.all(statement, parameters).await?.into_iter().next())
    }

    /// The row of a statement that returns one.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn one(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Cells, Failure> {
        let row = self.maybe(statement, parameters).await?;
        row.ok_or_else(|| Failure::Gone(DatabaseError::unexpected("no row")))
    }
}
