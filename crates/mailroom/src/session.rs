//! A connection to a database with the extension in it, and transactions over it.
//!
//! | module | owns |
//! |---|---|
//! | `attach` | connecting, and what there is |
//! | [`outbox`] | the deliverer's store |
//! | `statements` | the statements of that transaction |
//! | `row` | a claimed mail, read |
//! | `unreadable` | mail that cannot be read |
//!
//! No statement is named, no setting outlasts its transaction, and nothing is remembered in the server's session, so that
//! each transaction may be in another one behind a pooler. The statements of a transaction are sent together, without
//! waiting for their answers: one costs a round trip.

mod attach;
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

pub use self::attach::Settings;
use crate::control::Control;
use crate::database_error::DatabaseError;
use crate::log::Log;

/// How long the statements of a transaction may take: what takes that long is stuck.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How much longer than its statements a transaction may take before the connection is given up: commits wait for
/// standbys.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a transaction may take after a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long the server may take to hear of the end.
const CLOSING: Duration = Duration::from_millis(200);
const SILENCE: &str = "the server did not answer in time";

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A value of a statement, and its type.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// What the connection has to tell.
enum ConnectionEvent {
    /// A notification on this channel, and what it says.
    Notified(String, String),
    /// It ended, for this reason.
    Ended(String),
}

/// What was heard since the latest look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// Mail may be due.
    pub outbox: bool,
    /// Tokens may wait.
    pub tokens: bool,
    /// Everything is to be tried at once.
    pub recheck: bool,
}

/// What a notification on the channel of the outbox says after mailroom_wake_worker(), mailroom_resume() and the like.
const RECHECK: &str = "recheck";

/// A connection.
pub struct Session {
    runtime: Rc<Runtime>,
    control: Control,
    log: Log,
    client: Client,
    events: UnboundedReceiver<ConnectionEvent>,
    /// The first of [`Self::events`], once it was waited for.
    event: Option<ConnectionEvent>,
    /// For search_path.
    path: String,
    /// By the server.
    database: String,
    /// By the server.
    role: String,
    /// Words of this program are written as the database can hold them.
    is_utf8: bool,
    /// Whether this role collects.
    is_collector: bool,
    settings: Settings,
    /// The channels that it listens on.
    channels: Option<(String, String)>,
    /// A transaction was given up, and the state of the connection is not known.
    is_broken: bool,
    /// Sends and receives.
    connection: JoinHandle<()>,
}

impl Session {
    /// The name of the database, by the server.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whom it is connected as.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Whether this role may collect, answer and purge.
    pub fn is_collector(&self) -> bool {
        self.is_collector
    }

    /// As they were when the database was last polled.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs one statement that returns one row, in a transaction.
    ///
    /// # Errors
    /// Nothing of it has happened.
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
    /// Nothing of it has happened.
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

    /// Runs a transaction whose statements do not wait for each other.
    ///
    /// # Errors
    /// Nothing of it has happened.
    fn transaction<R>(
        &mut self,
        limit: Duration,
        body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        if self.is_broken {
            return Err(DatabaseError::lost("the connection was given up").into_log(&self.log));
        }
        let client = &self.client;
        let timeout = format!("{}ms", limit.as_millis());
        let settings: [Parameter<'_>; 2] = [(&self.path, Type::TEXT), (&timeout, Type::TEXT)];
        let work = async {
            // In this order they are sent. What follows upon an error is refused, the end of the transaction undoes it.
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
        };
        let done = bounded(&self.runtime, &self.control, limit, work);
        self.is_broken |= done.is_none();
        let done = done.unwrap_or_else(|| Err(DatabaseError::lost(SILENCE)));
        done.map_err(|failure| failure.into_log(&self.log))
    }

    /// Runs a transaction whose statements wait for each other.
    ///
    /// # Errors
    /// Nothing of it has happened.
    fn sequence<R>(
        &mut self,
        body: impl AsyncFnOnce(&Client) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        let client = &self.client;
        let timeout = format!("{}ms", STATEMENT_TIMEOUT.as_millis());
        let settings: [Parameter<'_>; 2] = [(&self.path, Type::TEXT), (&timeout, Type::TEXT)];
        let work = async {
            client.batch_execute(BEGIN).await?;
            let set = include_str!("../sql/transaction.sql");
            let done = match client.execute_typed(set, &settings).await {
                Ok(_) => body(client).await,
                Err(error) => Err(error.into()),
            };
            let is_good = done.is_ok();
            client
                .batch_execute(if is_good { "COMMIT" } else { "ROLLBACK" })
                .await?;
            done
        };
        let done = bounded(&self.runtime, &self.control, STATEMENT_TIMEOUT, work);
        self.is_broken |= done.is_none();
        let done = done.unwrap_or_else(|| Err(DatabaseError::lost(SILENCE)));
        done.map_err(|failure| failure.into_log(&self.log))
    }

    /// Ends the connection, and tells the server so.
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

    /// Waits until something arrives, which [`Self::heard`] tells.
    pub async fn arrival(&mut self) {
        if self.event.is_none() {
            self.event = self.events.recv().await;
        }
    }

    /// What has event.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn heard(&mut self) -> Result<Heard, DatabaseError> {
        let mut heard = Heard::default();
        loop {
            let arrival = match self.event.take() {
                Some(arrival) => Ok(arrival),
                None => self.events.try_recv(),
            };
            match arrival {
                Ok(ConnectionEvent::Notified(channel, payload)) => {
                    let is = |name: &str| name == channel;
                    heard.tokens |= is(&self.settings.channel);
                    heard.outbox |= is(&self.settings.outbox_channel);
                    heard.recheck |= is(&self.settings.outbox_channel) && payload == RECHECK;
                }
                Ok(ConnectionEvent::Ended(reason)) => return Err(DatabaseError::lost(reason)),
                Err(TryRecvError::Empty) => return Ok(heard),
                Err(TryRecvError::Disconnected) => {
                    return Err(DatabaseError::lost("the connection was closed"));
                }
            }
        }
    }
}

/// Runs something within its time, and within that of a stop; `None` if it took longer.
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
            () = tokio::time::sleep(limit + PATIENCE) => None,
            () = async {
                control.stopped().await;
                tokio::time::sleep(STOP_PATIENCE).await;
            } => None,
        }
    })
}
