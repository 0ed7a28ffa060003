//! The worker's access to its database: one transaction for each call, limited privileges, errors as values.
//!
//! The statements are in `sql/queries/`. Those on the queue and the outbox run as mailroom_collector in a
//! security-restricted operation, so that nothing they call, such as a user's trigger on a table, can gain the
//! privileges that the process was started with.

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
use crate::version::VERSION;
use crate::{restore, settings};
use mailroom_core::batching::Trigger;
use mailroom_core::purge::{self, Purge};
use statement::{call, count, integer, required};
use transaction::{STATEMENT_TIMEOUT, send_notifications, transaction, transaction_within};

/// How long a statement may wait for a lock, such as that of an ALTER TABLE, before it fails and is retried.
const LOCK_TIMEOUT: &CStr = c"5s";
/// How long answering a batch of requests may take. Tokens wait for it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A database with the extension, as this process found it.
pub struct Session {
    database: String,
    extension: pg_sys::Oid,
    collector: pg_sys::Oid,
}

/// One row of `attach.sql`.
struct Installed {
    version: String,
    /// As a quoted identifier.
    schema: EncodedText,
    database: String,
    collector: Option<pg_sys::Oid>,
    extension: pg_sys::Oid,
    /// The transaction that created the database, or last changed its row in pg_database.
    since: String,
}

impl Installed {
    /// Finds the extension in this database, if it is installed.
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

/// Sets search_path to pg_catalog, this schema (a quoted identifier) and pg_temp.
fn set_path(schema: &EncodedText) {
    let path = schema.between("pg_catalog, ", ", pg_temp");
    options::set(c"search_path", &path);
}

impl Session {
    /// Finds the extension, prepares this session, and listens on the channel. Returns `None` if the database does not
    /// have the extension.
    ///
    /// # Errors
    /// 55000 if the extension has another version than the library, 42704 if the role mailroom_collector is missing,
    /// and errors of the statements.
    pub fn attach() -> Result<Option<Self>, Failure> {
        // These settings would end the process, and abandon its mail in flight; the worker has its own limits.
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
        // These must not depend on the database's defaults for its users.
        options::set(c"default_transaction_isolation", c"read committed");
        options::set(c"default_transaction_read_only", c"off");
        // The policies for mailroom's roles let them through; off would refuse their statements.
        options::set(c"row_security", c"on");
        // A plan made for a large queue must not be compiled for each small batch.
        options::set(c"jit", c"off");
        // After a crash, the tokens of a lost batch are in pending again. No mail can be sent whose commit is not on
        // disk: the commit of a claim is always synchronous, and flushes all earlier commits.
        options::set(c"synchronous_commit", c"off");
        options::set(c"application_name", c"mailroom");
        let session = Self {
            database: found.database,
            extension: found.extension,
            collector,
        };
        session.pause_if_copied(&found.since)?;
        // Last, because a process that listens without taking delivery blocks the whole server's notification queue.
        session.listen()?;
        Ok(Some(session))
    }

    /// Pauses this worker if the database is a copy that contains waiting mail, tokens or requests of the original.
    fn pause_if_copied(&self, since: &str) -> Result<(), Failure> {
        let here = process::database();
        // With the privileges of the server: no role may pause the worker with this function.
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

    /// The name of the database when the session began.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Applies `mailroom.*` settings that ALTER DATABASE or ALTER ROLE changed or reset since the session began. After
    /// a reset, a value from the server's command line is not known.
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
            // An invalid value causes a warning and leaves the setting unchanged.
            if let Ok(name) = CString::new(name) {
                options::set_for_database(&name, setting.as_c_str());
            }
        }
        Ok(())
    }

    /// Listens on the current `mailroom.channel` only.
    pub fn listen(&self) -> Result<(), Failure> {
        transaction(None, || {
            notify::listen_only(&settings::channel());
            Ok(())
        })
    }

    /// Reads the queue. Counts up to `limit` tokens in each lane.
    pub fn waiting(&self, limit: u32) -> Result<Waiting, Failure> {
        self.call_unless_restoring(
            include_str!("../../sql/queries/pending_summary.sql"),
            &[integer(limit).into()],
            Waiting::read,
        )
    }

    /// Reads the queue and maintains the outbox, in one statement. `own`: the transports that the worker delivers through, to
    /// search for mail of others.
    pub fn poll(
        &self,
        limit: u32,
        own: Option<Vec<String>>,
        tell: Tell,
    ) -> Result<(Waiting, OutboxState), Failure> {
        let poll = include_str!("../../sql/queries/poll.sql");
        self.unless_restoring(STATEMENT_TIMEOUT, || {
            // Made here because looking up an array type requires a transaction.
            call(poll, &[integer(limit).into(), own.into()], |row| {
                let state = OutboxState::read(row, 4)?.tell(tell);
                Ok((Waiting::read(row)?, state))
            })
        })
    }

    /// Maintains the outbox only, and notifies senders that mail is due.
    pub fn maintain_outbox(&self, own: Option<Vec<String>>) -> Result<OutboxState, Failure> {
        let maintain = include_str!("../../sql/queries/maintain_outbox.sql");
        self.unless_restoring(STATEMENT_TIMEOUT, || {
            call(maintain, &[own.into()], |row| {
                Ok(OutboxState::read(row, 1)?.tell(Tell::Senders))
            })
        })
    }

    /// Notifies senders by a function of [`crate::shared_memory::senders`].
    pub fn notify_senders(&self, notify: fn()) {
        notify();
        send_notifications();
    }

    /// Deletes a batch of rows that are older than the retention. Returns whether there are more.
    pub fn purge(&self, purge: Purge) -> Result<bool, Failure> {
        let statement = include_str!("../../sql/queries/purge.sql");
        let arguments = [purge.rows.into(), purge.starts_over.into()];
        self.unless_restoring(purge::TIMEOUT, || {
            call(statement, &arguments, |row| required(row, 1))
        })
    }

    /// Takes one batch and records it. Then notifies outside listeners if that is owed.
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

    /// Answers requests for links, without collecting the resulting tokens.
    pub fn answer_requests(&self) -> Result<(), Failure> {
        let answer = include_str!("../../sql/queries/answer_requests.sql");
        self.unless_restoring(ANSWER_TIMEOUT, || call(answer, &[], |_| Ok(())))
    }

    /// Notifies outside listeners.
    pub fn notify_listeners(&self) {
        Listeners::Owed.tell();
        send_notifications();
    }

    /// Records a failed batch in job_runs.
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

    /// Sets search_path again after a failure, because the schema may have been renamed since this session attached.
    pub fn follow_schema(&self) {
        if let Ok(Some(found)) = Installed::find() {
            set_path(&found.schema);
        }
    }

    /// Whether the extension that this session attached to was dropped.
    pub fn is_gone(&self) -> bool {
        matches!(
            transaction(None, || self.check_extension()),
            Err(Failure::ExtensionGone)
        )
    }

    /// Fails if the extension was dropped, and keeps it from being dropped until the transaction ends.
    ///
    /// DROP EXTENSION locks the extension before its tables, and the tables in any order: a transaction that locked a
    /// table first could deadlock with it.
    fn check_extension(&self) -> Result<(), Failure> {
        catalog::keep_extension(self.extension);
        if catalog::extension() == Some(self.extension) {
            Ok(())
        } else {
            Err(Failure::ExtensionGone)
        }
    }

    /// As [`Self::call`], but refused while a dump is restored: for statements that hand out rows, or check for rows to
    /// hand out.
    fn call_unless_restoring<R>(
        &self,
        statement: &'static str,
        arguments: &[DatumWithOid<'_>],
        read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.unless_restoring(STATEMENT_TIMEOUT, || call(statement, arguments, read))
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

    /// Runs one statement that returns one row, as mailroom_collector, in a separate transaction.
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
