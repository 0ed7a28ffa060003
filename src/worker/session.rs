//! The worker's dealings with its database: one transaction a call, bounded rights, errors as values.
//!
//! The statements are in `sql/queries/`. They run as mailroom_collector inside a security-restricted
//! operation, so that nothing they reach, such as a trigger that a user created on a table, can get at the
//! rights the process was started with.

mod exchange;
mod failure;
mod mail;
mod rows;
mod statement;
mod transaction;

pub use failure::Failure;
pub use rows::{Batch, Listeners, OutboxState, Tell, Waiting};

use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::datum::{DatumWithOid, TimestampWithTimeZone};
use pgrx::prelude::*;
use pgrx::spi::SpiTupleTable;

use crate::pg::encoding::{EncodedText, Text};
use crate::pg::version::SETTINGS_THAT_END_PROCESSES;
use crate::pg::{catalog, log, notify, options, process};
use crate::{restore, settings};
use mailroom_core::batching::Trigger;
use statement::{call, count, integer, required};
use transaction::{STATEMENT_TIMEOUT, transaction, transaction_within};

/// The version whose SQL this library was built for.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long a statement may wait for a lock, say behind an ALTER TABLE, before it gives way and tries again.
const LOCK_TIMEOUT: &CStr = c"5s";
/// How long a purge may take. It can wait, and nothing is to wait for it.
const PURGE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long answering a batch of requests may take. Tokens wait for it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A database with the extension, as this process knows it.
pub struct Session {
    database: String,
    extension: pg_sys::Oid,
    collector: pg_sys::Oid,
}

/// One row of `attach.sql`.
struct Installed {
    version: String,
    /// As SQL writes it.
    schema: EncodedText,
    database: String,
    collector: Option<pg_sys::Oid>,
    extension: pg_sys::Oid,
    /// The transaction that made the database, or changed its row since.
    since: String,
}

impl Installed {
    /// Looks for the extension in this database.
    fn find() -> Result<Option<Self>, Failure> {
        transaction(None, || {
            Spi::connect(|client| {
                let row =
                    client.select(include_str!("../../sql/queries/attach.sql"), Some(1), &[])?;
                if row.is_empty() {
                    return Ok(None);
                }
                let row = row.first();
                let database: EncodedText = required(&row, 3)?;
                Ok(Some(Self {
                    version: required(&row, 1)?,
                    schema: required(&row, 2)?,
                    database: database.shared_name(),
                    collector: row.get(4)?,
                    extension: required(&row, 5)?,
                    since: required(&row, 6)?,
                }))
            })
        })
    }
}

/// Has statements find what is in this schema, given as SQL writes it, and PostgreSQL's own before it.
fn set_path(schema: &EncodedText) {
    let path = schema.between("pg_catalog, ", ", pg_temp");
    options::set(c"search_path", &path);
}

impl Session {
    /// Finds the extension and listens on its channel; `None` when the database does not have it.
    pub fn attach() -> Result<Option<Self>, Failure> {
        // It would end the process, and what is under way with it; the worker has its own bounds.
        for (name, value) in SETTINGS_THAT_END_PROCESSES {
            options::set(name, value);
        }
        let found = Installed::find()?;
        let Some(found) = found else { return Ok(None) };
        if found.version != VERSION {
            return Err(Failure::refused(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                &format!(
                    "the extension is version {}, the library {VERSION}",
                    found.version
                ),
                Some(
                    "Run ALTER EXTENSION mailroom UPDATE, or restart the server with the matching library.",
                ),
            ));
        }
        let Some(collector) = found.collector else {
            return Err(Failure::refused(
                PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                "role mailroom_collector does not exist",
                Some("Create the role and grant it what the extension's script does."),
            ));
        };
        set_path(&found.schema);
        options::set(c"lock_timeout", LOCK_TIMEOUT);
        // Independent of the database's defaults for its users.
        options::set(c"default_transaction_isolation", c"read committed");
        options::set(c"default_transaction_read_only", c"off");
        // A plan made for a large queue must not be compiled for each small batch.
        options::set(c"jit", c"off");
        // A batch that a crash takes back is in pending again. A row whose commit is not on disk yet cannot
        // be sent: a claim is always brought to disk, and all earlier commits with it.
        options::set(c"synchronous_commit", c"off");
        options::set(c"application_name", c"mailroom");
        let session = Self {
            database: found.database,
            extension: found.extension,
            collector,
        };
        session.pause_if_copied(&found.since)?;
        // Last: a process that listens and does not take delivery holds up the whole server's notifications.
        session.listen()?;
        Ok(Some(session))
    }

    /// Has this worker be paused if the database is a copy of another with all that waits there.
    fn pause_if_copied(&self, since: &str) -> Result<(), Failure> {
        let here = process::database();
        // With the rights of the server: no role may pause by it.
        let paused = transaction(None, || {
            call(
                include_str!("../../sql/queries/pause_if_copied.sql"),
                &[here.into(), since.into()],
                |row| required(row, 1),
            )
        })?;
        if paused {
            log::warn(
                &format!(
                    "mailroom worker paused itself: database \"{}\" is a copy",
                    self.database
                ),
                "The original may send what waits here, too.",
                "Delete what is not to be sent, then call mailroom_resume().",
            );
        }
        Ok(())
    }

    /// The name of the database, as it was at the start.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Takes up what was set for this database by ALTER DATABASE or ALTER ROLE since the session began, and gives up
    /// what was reset. A server that sets it on its command line is the exception: that is not known any more.
    pub fn follow_settings(&self) -> Result<(), Failure> {
        let settings = transaction(None, || {
            Spi::connect(|client| {
                let query = include_str!("../../sql/queries/database_settings.sql");
                let mut settings: Vec<(String, EncodedText)> = Vec::new();
                for row in client.select(query, None, &[])? {
                    if let (Some(name), Some(setting)) = (row.get(1)?, row.get(2)?) {
                        settings.push((name, setting));
                    }
                }
                Ok(settings)
            })
        })?;
        for (name, setting) in settings {
            // One that is no good is warned of, and stays as it was.
            if let Ok(name) = CString::new(name) {
                options::set_for_database(&name, setting.as_c_str());
            }
        }
        Ok(())
    }

    /// Listens on `mailroom.channel` as it is now, and on nothing else.
    pub fn listen(&self) -> Result<(), Failure> {
        transaction(None, || {
            notify::listen_only(&settings::channel());
            Ok(())
        })
    }

    /// Looks at the queue.
    pub fn waiting(&self, limit: u32) -> Result<Waiting, Failure> {
        self.call_unless_restoring(
            include_str!("../../sql/queries/pending_summary.sql"),
            &[integer(limit).into()],
            Waiting::read,
        )
    }

    /// Looks at the queue and after the outbox.
    pub fn poll(&self, limit: u32, tell: Tell) -> Result<(Waiting, OutboxState), Failure> {
        let arguments = [integer(limit).into(), (tell == Tell::Senders).into()];
        self.call_unless_restoring(
            include_str!("../../sql/queries/poll.sql"),
            &arguments,
            |row| Ok((Waiting::read(row)?, OutboxState::read(row, 4)?)),
        )
    }

    /// Looks after the outbox alone.
    pub fn maintain_outbox(&self, tell: Tell) -> Result<OutboxState, Failure> {
        self.call_unless_restoring(
            include_str!("../../sql/queries/maintain_outbox.sql"),
            &[(tell == Tell::Senders).into()],
            |row| OutboxState::read(row, 1),
        )
    }

    /// Tells senders that mail is due, and does nothing else.
    pub fn notify_due(&self) -> Result<(), Failure> {
        self.call(
            include_str!("../../sql/queries/notify_due.sql"),
            &[],
            |_| Ok(()),
        )
    }

    /// Tells senders something, by a function of [`crate::shared_memory::announce`].
    pub fn notify_senders(&self, notify: fn()) -> Result<(), Failure> {
        transaction(None, || {
            notify();
            Ok(())
        })
    }

    /// Deletes some of the rows that are older than the retention; whether there are more.
    pub fn purge(&self) -> Result<bool, Failure> {
        let purge = include_str!("../../sql/queries/purge.sql");
        self.call_within(PURGE_TIMEOUT, purge, |row| required(row, 1))
    }

    /// Takes one batch and records it; tells outside listeners in the same transaction if they are owed it.
    pub fn run_batch(
        &self,
        limit: u32,
        trigger: Trigger,
        outside: Listeners,
    ) -> Result<Batch, Failure> {
        let arguments = [integer(limit).into(), trigger.as_str().into()];
        self.call_unless_restoring(
            include_str!("../../sql/queries/run_batch.sql"),
            &arguments,
            |row| {
                outside.tell();
                Ok(Batch {
                    collected: count(required(row, 1)?),
                    skipped: count(required(row, 2)?),
                })
            },
        )
    }

    /// Answers requests for links, without taking the tokens that they become.
    pub fn answer_requests(&self) -> Result<(), Failure> {
        let answer = include_str!("../../sql/queries/answer_requests.sql");
        self.call_within(ANSWER_TIMEOUT, answer, |_| Ok(()))
    }

    /// Tells outside listeners in a transaction of its own.
    pub fn notify_listeners(&self) -> Result<(), Failure> {
        transaction(None, || {
            Listeners::Owed.tell();
            Ok(())
        })
    }

    /// Leaves a trace of a failed batch in job_runs.
    pub fn record_failure(&self, failure: &Failure, trigger: Trigger) -> Result<(), Failure> {
        let Failure::Refused {
            sqlstate,
            message,
            began,
            ..
        } = failure
        else {
            return Ok(());
        };
        let error = format!("{message} [{sqlstate}]");
        let began = began.and_then(|began| TimestampWithTimeZone::try_from(began).ok());
        transaction(Some(self.collector), || {
            Spi::connect_mut(|client| {
                let arguments = [
                    began.into(),
                    trigger.as_str().into(),
                    Text(Some(error)).into(),
                ];
                client.update(
                    include_str!("../../sql/queries/record_failure.sql"),
                    None,
                    &arguments,
                )?;
                Ok(())
            })
        })
    }

    /// After a failure: the schema may have another name than when this session attached.
    pub fn follow_schema(&self) {
        if let Ok(Some(found)) = Installed::find() {
            set_path(&found.schema);
        }
    }

    /// Whether the extension this session attached to was dropped.
    pub fn is_gone(&self) -> bool {
        matches!(
            transaction(None, || self.check_extension()),
            Err(Failure::ExtensionGone)
        )
    }

    /// Fails when the extension was dropped, and keeps it from being dropped until the transaction ends.
    ///
    /// DROP EXTENSION locks it before its tables, those in any order: a transaction that locks a table first may
    /// wait in a circle.
    fn check_extension(&self) -> Result<(), Failure> {
        catalog::keep_extension(self.extension);
        if catalog::extension() == Some(self.extension) {
            Ok(())
        } else {
            Err(Failure::ExtensionGone)
        }
    }

    /// As [`Self::call`], for statements that take something or look whether there is anything to take.
    fn call_unless_restoring<R>(
        &self,
        statement: &'static str,
        arguments: &[DatumWithOid<'_>],
        read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.unless_restoring(STATEMENT_TIMEOUT, || call(statement, arguments, read))
    }

    /// As above, for what is not to take long.
    fn call_within<R>(
        &self,
        timeout: Duration,
        statement: &'static str,
        read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.unless_restoring(timeout, || call(statement, &[], read))
    }

    fn unless_restoring<R>(
        &self,
        timeout: Duration,
        body: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        transaction_within(timeout, Some(self.collector), || {
            self.check_extension()?;
            if !restore::may_hand_out() {
                return Err(Failure::Restoring);
            }
            body()
        })
    }

    /// Runs one statement that returns one row, as mailroom_collector, in a transaction of its own.
    fn call<R>(
        &self,
        statement: &'static str,
        arguments: &[DatumWithOid<'_>],
        read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        transaction(Some(self.collector), || {
            self.check_extension()?;
            call(statement, arguments, read)
        })
    }
}
