//! A database that takes events: its connection, which is opened when it is needed, and its outages.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use mailroom_core::transport::config::TransportEvents;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::connection::{Connection, Failure};
use crate::conninfo::Target;
use crate::database_error::DatabaseError;
use crate::log::{Log, Throttle};

/// How long a request waits for a database.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// How long a database is not tried again after no connection could be made.
const RETRY: Duration = Duration::from_secs(1);
/// The default of `mailroom.retention`, for a database that was not asked yet.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// What becomes of requests that could not be done.
const REPEATED: &str = "The answer is 503, and providers post events again.";

/// What a database did with events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It has all of them; this many were news.
    All(i32),
    /// None: the transport does not serve it.
    NotServed,
    /// It does not have all of them, or that is not known.
    Failed,
}

/// A database.
pub struct Database {
    target: Target,
    log: Log,
    /// The name of the database, as the server reports it.
    name: RefCell<Option<String>>,
    retention: Cell<Option<Duration>>,
    slot: Mutex<Slot>,
}

/// The connection. One request uses it at a time.
#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    outage: Option<Outage>,
    /// Lines about errors that are not of the connection.
    refusals: Throttle,
    has_started: bool,
}

/// While no connection can be used.
struct Outage {
    since: Instant,
    retry_at: Instant,
    latest: DatabaseError,
}

impl Database {
    /// A database without a connection, and its log.
    pub fn new(target: Target, log: Log) -> Self {
        Self {
            target,
            log,
            name: RefCell::default(),
            retention: Cell::default(),
            slot: Mutex::default(),
        }
    }

    /// Connects; returns whether the role may report events. A database that cannot be reached is left for later.
    pub async fn check(&self) -> bool {
        let mut slot = self.slot.lock().await;
        match self.connect(&mut slot).await {
            Ok(connection) => slot.connection = Some(connection),
            Err(Failure::MayNotReport(_)) => return false,
            Err(Failure::Other(_)) => {}
        }
        true
    }

    /// Whether this transport may serve the database: false if it does not.
    pub fn may_be_served(&self, transport: &TransportEvents) -> bool {
        let name = self.name.borrow();
        name.as_ref().is_none_or(|name| transport.serves(name))
    }

    /// How long the database remembers events.
    pub fn retention(&self) -> Duration {
        self.retention.get().unwrap_or(RETENTION)
    }

    /// Records reports of the events of a transport, each in a transaction of its own.
    pub async fn take(&self, transport: &TransportEvents, reports: &[String]) -> Taken {
        if !self.may_be_served(transport) {
            return Taken::NotServed;
        }
        let what = format!(
            "events of transport \"{}\" were not recorded",
            transport.name
        );
        let taken = self.run(&what, async |connection| {
            self.report(connection, transport, reports).await
        });
        taken.await.unwrap_or(Taken::Failed)
    }

    /// Whether this is the name of the database; false as long as that is not known.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.borrow().as_deref() == Some(name)
    }

    /// Whether the name of the database is known.
    pub fn has_name(&self) -> bool {
        self.name.borrow().is_some()
    }

    /// Unsubscribes whose token this is; returns whether there is one, or `None` if the database cannot tell now.
    pub async fn unsubscribe(&self, token: &str) -> Option<bool> {
        let work = self.run("an address was not unsubscribed", async |connection| {
            connection.unsubscribe(token).await
        });
        work.await
    }

    /// Does this over the connection, or over a new one if that has ended: what was done before is recognized. `None` if it
    /// could not be done, or that is not known; the log says why.
    async fn run<T>(
        &self,
        what: &str,
        work: impl AsyncFn(&Connection) -> Result<T, DatabaseError>,
    ) -> Option<T> {
        let done = async {
            let mut slot = self.slot.lock().await;
            let kept = slot.connection.take().filter(Connection::is_open);
            let was_kept = kept.is_some();
            let mut done = self.attempt(&mut slot, kept, what, &work).await;
            // It may have ended while it was not used.
            if was_kept && done.as_ref().is_err_and(DatabaseError::is_gone) {
                done = self.attempt(&mut slot, None, what, &work).await;
            }
            if let Err(error) = done.as_ref()
                && error.is_gone()
            {
                self.warn_of_outage(&mut slot, error, (Duration::ZERO, REPEATED));
            }
            done.ok()
        };
        timeout(REQUEST_TIME, done).await.ok().flatten()
    }

    /// Does this over this connection, or else a new one, and keeps it if it still works.
    async fn attempt<T>(
        &self,
        slot: &mut Slot,
        kept: Option<Connection>,
        what: &str,
        work: impl AsyncFn(&Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let connection = match kept {
            Some(connection) => connection,
            None => match self.connect(slot).await {
                Ok(connection) => connection,
                Err(failure) => return Err(failure.error().clone()),
            },
        };
        let done = work(&connection).await;
        match &done {
            Err(error) if error.is_gone() => {}
            Err(error) => {
                if slot.refusals.pass(Instant::now()).is_some() {
                    let what = format!("{what}: {error}");
                    self.log.warn(&what, REPEATED, error.hint());
                }
                slot.connection = Some(connection);
            }
            Ok(_) => {
                self.end_outage(slot);
                slot.connection = Some(connection);
            }
        }
        done
    }

    async fn report(
        &self,
        connection: &Connection,
        transport: &TransportEvents,
        reports: &[String],
    ) -> Result<Taken, DatabaseError> {
        if !transport.serves(&connection.database) {
            return Ok(Taken::NotServed);
        }
        let mut news = 0_i32;
        for report in reports {
            let recorded = connection.report(&transport.name, report).await?;
            news = news.saturating_add(recorded.news);
            self.retention
                .set(recorded.retention.or(self.retention.get()));
        }
        Ok(Taken::All(news))
    }

    /// Connects, unless that has failed a moment ago.
    async fn connect(&self, slot: &mut Slot) -> Result<Connection, Failure> {
        if let Some(outage) = &slot.outage
            && Instant::now() < outage.retry_at
        {
            return Err(outage.latest.clone().into());
        }
        let opened = Connection::open(&self.target).await;
        match &opened {
            Ok(connection) => {
                *self.name.borrow_mut() = Some(connection.database.clone());
                self.retention.set(connection.retention);
                if !std::mem::replace(&mut slot.has_started, true) {
                    let database = &connection.database;
                    self.log.log(&format!(
                        "mailroom receive started in database \"{database}\""
                    ));
                }
            }
            Err(failure) => {
                let detail = match failure {
                    Failure::MayNotReport(_) => "",
                    Failure::Other(_) => REPEATED,
                };
                self.warn_of_outage(slot, failure.error(), (RETRY, detail));
            }
        }
        opened
    }

    /// Records that no connection can be used, for this time at least. The first time is logged, with this detail.
    fn warn_of_outage(
        &self,
        slot: &mut Slot,
        error: &DatabaseError,
        (delay, detail): (Duration, &str),
    ) {
        let now = Instant::now();
        let retry_at = now + delay;
        if let Some(outage) = &mut slot.outage {
            outage.retry_at = outage.retry_at.max(retry_at);
            outage.latest = error.clone();
            return;
        }
        let what = format!("cannot use the database: {error}");
        self.log.warn(&what, detail, error.hint());
        self.target.warn_of_passfile(&self.log);
        slot.outage = Some(Outage {
            since: now,
            retry_at,
            latest: error.clone(),
        });
    }

    fn end_outage(&self, slot: &mut Slot) {
        if let Some(outage) = slot.outage.take() {
            let length = outage.since.elapsed().as_secs();
            self.log
                .log(&format!("the database can be used again, after {length} s"));
        }
    }

    /// Closes the connection, unless it is in use.
    pub async fn close(&self) {
        let connection = self.slot.try_lock().map(|mut slot| slot.connection.take());
        if let Ok(Some(connection)) = connection {
            connection.close().await;
        }
    }
}
