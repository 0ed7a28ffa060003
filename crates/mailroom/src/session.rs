//! A connection to a database with the extension, and transactions over it.
//!
//! | module | owns |
//! |---|---|
//! | `connect` | connecting to one of the hosts |
//! | `attach` | checking the database, and polling |
//! | [`outbox`] | the store of the job runner |
//! | `statements` | the statements that settle and claim |
//! | `row` | reading a claimed mail from a row |
//! | `unreadable` | ending mail that cannot be read |
//!
//! No statement is prepared by name, and no setting outlasts its transaction, so that behind a pooler each transaction
//! may run in another server session. The statements of a transaction are sent without waiting for their results, so a
//! transaction costs one round trip.

mod attach;
pub mod connect;
pub mod outbox;
mod row;
mod statements;
mod unreadable;

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use self::attach::VERSION;
pub use self::attach::{Extension, Settings, find_extension, standby};
use crate::control::Control;
use crate::database_error::DatabaseError;
use crate::log::Log;

/// Maximum duration of the statements of a transaction.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum duration of a wait for a lock, if it is not that of settlements.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than its statements a transaction may take, because a commit waits for standbys. Then the connection
/// is given up.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum duration of a transaction after a stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum duration of closing a connection.
pub const CLOSING: Duration = Duration::from_millis(200);
/// The error if a time limit ends.
pub const NO_ANSWER: &str = "the server did not answer in time";

/// Constraints are checked by the statement that violates them: at COMMIT no row could be skipped.
pub const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET CONSTRAINTS ALL IMMEDIATE";

/// A parameter of a statement, and its type.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// An event of the connection.
pub enum ConnectionEvent {
    /// A notification: channel and payload.
    Notified(String, String),
    /// The connection ended, for this reason.
    Ended(String),
}

/// The notifications since the latest check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notifications {
    /// Mail may be due.
    pub outbox: bool,
    /// Some of it is urgent.
    pub urgent: bool,
    /// Tokens may wait.
    pub tokens: bool,
    /// An operator asks for an immediate retry of everything.
    pub recheck: bool,
}

/// The channel that announces mail.
const OUTBOX_CHANNEL: &str = "outbox_due";

/// The payload of a notification on the channel of the outbox after mailroom_wake_worker(), mailroom_resume() and
/// similar.
const RECHECK: &str = "recheck";

/// The same if some of the mail is urgent.
const URGENT: &str = "urgent";

/// A connection.
pub struct Session {
    runtime: Rc<Runtime>,
    control: Control,
    log: Log,
    client: Client,
    events: UnboundedReceiver<ConnectionEvent>,
    /// The first of [`Self::events`], after it was awaited.
    event: Option<ConnectionEvent>,
    /// The value of search_path.
    path: String,
    /// The name of the database, as the server reports it.
    database: String,
    /// The name of the role, as the server reports it.
    role: String,
    /// Whether the database's encoding is UTF-8; otherwise reasons are sent in ASCII.
    is_utf8: bool,
    /// Whether this role may collect.
    is_collector: bool,
    settings: Settings,
    /// `mailroom.channel` when the connection began to listen.
    listening_on: Option<String>,
    /// Whether a transaction was given up, so that the state of the connection is not known.
    is_broken: bool,
    /// The task that sends and receives.
    connection: JoinHandle<()>,
}

impl Session {
    /// The name of the database, as the server reports it.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The role, as the server reports it.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Whether this role may collect, answer requests and purge.
    pub fn is_collector(&self) -> bool {
        self.is_collector
    }

    /// The settings as of the latest poll.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs one statement that returns one row, in a transaction.
    ///
    /// # Errors
    /// The transaction was rolled back, or its outcome is not known because the connection was lost.
    pub fn call<R>(
        &mut self,
        limit: Duration,
        statement: &str,
        parameters: &[Parameter<'_>],
        read: impl FnOnce(&Row) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, DatabaseError> {
        let row = self.rows(limit, statement, parameters)?.into_iter().next();
        let row = row.ok_or_else(|| DatabaseError::unexpected("no row").into_log(&self.log))?;
        read(&row).map_err(|error| DatabaseError::from(error).into_log(&self.log))
    }

    /// Runs one statement in a transaction.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn rows(
        &mut self,
        limit: Duration,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, DatabaseError> {
        self.transaction(limit, async |client| {
            client
                .query_typed(statement, parameters)
                .await
                .map_err(DatabaseError::from)
        })
    }

    /// Runs a transaction whose statements are sent without waiting for each other.
    ///
    /// # Errors
    /// As [`Self::call`].
    fn transaction<R>(
        &mut self,
        limit: Duration,
        body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        self.transaction_with(limit, LOCK_TIMEOUT, body)
    }

    /// As [`Self::transaction`], with a limit for each wait for a lock.
    fn transaction_with<R>(
        &mut self,
        limit: Duration,
        lock_timeout: Duration,
        body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        let done = self.run(limit, lock_timeout, body);
        done.map_err(|failure| {
            // A trigger of a user may have raised it.
            let is_doubtful = failure.is_gone() && !failure.sqlstate().is_empty();
            let failure = match is_doubtful && self.is_usable() {
                true => failure.of_statement(),
                false => failure,
            };
            failure.into_log(&self.log)
        })
    }

    /// Whether the connection works, and the database has the extension in the same schema and of this version.
    fn is_usable(&mut self) -> bool {
        let installed = include_str!("../../../sql/queries/attach.sql");
        let found = self.run(STATEMENT_TIMEOUT, LOCK_TIMEOUT, async |client| {
            Ok(client.query_typed(installed, &[]).await?)
        });
        let row = found.ok().and_then(|rows| rows.into_iter().next());
        row.is_some_and(|row| {
            let [version, schema] = [0, 1].map(|column| row.try_get::<_, String>(column).ok());
            let path = schema.map(|schema| search_path(&schema));
            version.as_deref() == Some(VERSION) && path.as_ref() == Some(&self.path)
        })
    }

    fn run<R>(
        &mut self,
        limit: Duration,
        lock_timeout: Duration,
        body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        if self.is_broken {
            return Err(DatabaseError::lost("the connection was given up"));
        }
        let work = in_transaction(&self.client, &self.path, (limit, lock_timeout), body);
        let done = bounded(&self.runtime, &self.control, limit, work);
        self.is_broken |= done.is_none();
        done.unwrap_or_else(|| Err(DatabaseError::lost(NO_ANSWER)))
    }

    /// Runs a transaction whose statements wait for each other.
    ///
    /// # Errors
    /// As [`Self::call`].
    fn sequence<R>(
        &mut self,
        body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        let limits = (STATEMENT_TIMEOUT, LOCK_TIMEOUT);
        let work = in_sequence(&self.client, BEGIN, &self.path, limits, body);
        let done = bounded(&self.runtime, &self.control, STATEMENT_TIMEOUT, work);
        self.is_broken |= done.is_none();
        let done = done.unwrap_or_else(|| Err(DatabaseError::lost(NO_ANSWER)));
        done.map_err(|failure| failure.into_log(&self.log))
    }

    /// Closes the connection.
    pub fn close(self) {
        let Self {
            runtime,
            client,
            connection,
            ..
        } = self;
        drop(client);
        runtime.block_on(async {
            let _ = tokio::time::timeout(CLOSING, connection).await;
        });
    }

    /// Waits for an event, which [`Self::notifications`] handles.
    pub async fn arrival(&mut self) {
        if self.event.is_none() {
            self.event = self.events.recv().await;
        }
    }

    /// Handles the events that have arrived.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn notifications(&mut self) -> Result<Notifications, DatabaseError> {
        let mut notifications = Notifications::default();
        loop {
            let arrival = match self.event.take() {
                Some(arrival) => Ok(arrival),
                None => self.events.try_recv(),
            };
            match arrival {
                Ok(ConnectionEvent::Notified(channel, payload)) => {
                    let is = |name: &str| name == channel;
                    notifications.tokens |= is(&self.settings.channel);
                    notifications.outbox |= is(OUTBOX_CHANNEL);
                    notifications.urgent |= is(OUTBOX_CHANNEL) && payload == URGENT;
                    notifications.recheck |= is(OUTBOX_CHANNEL) && payload == RECHECK;
                }
                Ok(ConnectionEvent::Ended(reason)) => return Err(DatabaseError::lost(reason)),
                Err(TryRecvError::Empty) => return Ok(notifications),
                Err(TryRecvError::Disconnected) => {
                    return Err(DatabaseError::lost("the connection was closed"));
                }
            }
        }
    }
}

/// A time as the value of a setting.
pub fn milliseconds(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// The value of search_path for the extension in this schema, given as SQL writes it.
pub fn search_path(schema: &str) -> String {
    format!("pg_catalog, {schema}, pg_temp")
}

/// Runs a transaction whose statements are sent without waiting for each other, with this search_path and these limits: of
/// its statements, and of each wait for a lock.
///
/// # Errors
/// The transaction was rolled back, or its outcome is not known because the connection was lost.
pub async fn in_transaction<R>(
    client: &Client,
    path: &str,
    (limit, lock_limit): (Duration, Duration),
    body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
) -> Result<R, DatabaseError> {
    let [limit, lock_limit] = [limit, lock_limit].map(milliseconds);
    let settings: [Parameter<'_>; 3] = [
        (&path, Type::TEXT),
        (&limit, Type::TEXT),
        (&lock_limit, Type::TEXT),
    ];
    // They are sent in this order. After an error, the server skips the rest, and COMMIT rolls back.
    let (begun, set, done, ended) = tokio::join!(
        biased;
        client.batch_execute(BEGIN),
        client.execute_typed(include_str!("../sql/transaction.sql"), &settings),
        body(client),
        client.batch_execute("COMMIT"),
    );
    begun?;
    set?;
    let done = done?;
    ended?;
    Ok(done)
}

/// Runs a transaction whose statements wait for each other; it begins as said.
///
/// # Errors
/// As [`in_transaction`].
pub async fn in_sequence<R, E: From<tokio_postgres::Error>>(
    client: &Client,
    begin: &str,
    path: &str,
    (limit, lock_limit): (Duration, Duration),
    body: impl AsyncFnOnce(&Client) -> Result<R, E>,
) -> Result<R, E> {
    let [limit, lock_limit] = [limit, lock_limit].map(milliseconds);
    let settings: [Parameter<'_>; 3] = [
        (&path, Type::TEXT),
        (&limit, Type::TEXT),
        (&lock_limit, Type::TEXT),
    ];
    client.batch_execute(begin).await?;
    let set = include_str!("../sql/transaction.sql");
    let done = match client.execute_typed(set, &settings).await {
        Ok(_) => body(client).await,
        Err(error) => Err(error.into()),
    };
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await?;
    done
}

/// Runs a future with a time limit, which is shorter after a stop; `None` at the limit.
fn bounded<R>(
    runtime: &Runtime,
    control: &Control,
    limit: Duration,
    work: impl Future<Output = R>,
) -> Option<R> {
    let mut control = control.clone();
    runtime.block_on(async {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = tokio::time::sleep(limit + COMMIT_TIMEOUT) => None,
            () = async {
                control.stopped().await;
                tokio::time::sleep(STOP_TIMEOUT).await;
            } => None,
        }
    })
}
