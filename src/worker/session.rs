//! The worker's dealings with its database: one transaction a call, bounded rights, errors as values.
//!
//! The statements are in `sql/queries/`. They run as mailroom_collector inside a security-restricted
//! operation, so that nothing they reach, a trigger somebody put on a table for instance, can get at the
//! rights the process was started with.

mod exchange;
mod transaction;

pub use transaction::{install_signal_handlers, stop_requested};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::datum::{DatumWithOid, TimestampWithTimeZone};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient, SpiError, SpiTupleTable};

use crate::{notify, restore, server, settings, sqlstate, wake};
use mailroom_core::batching::Trigger;
use transaction::{STATEMENT_TIMEOUT, transaction, transaction_within};

/// The version whose SQL this library was built for.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long a statement may wait for a lock, say behind an ALTER TABLE, before it gives way and tries again.
const LOCK_TIMEOUT: &str = "5s";
/// How long a purge may take. It can wait, and nothing is to wait for it.
const PURGE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long answering a batch of requests may take. Tokens wait for it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a transaction of the worker came to nothing.
pub enum Failure {
    /// The extension this session attached to is no longer there.
    ExtensionGone,
    /// Somebody restores a dump, and nothing is to be touched before all of it is there.
    Restoring,
    /// PostgreSQL or the library refused. Neither DETAIL nor CONTEXT is kept: they may quote rows.
    Refused {
        /// Five characters.
        sqlstate: String,
        /// The primary message.
        message: String,
        /// The remedy, if the error named one.
        hint: Option<String>,
        /// When the transaction began, in microseconds since 2000-01-01.
        began: Option<i64>,
    },
}

impl Failure {
    fn refused(code: PgSqlErrorCode, message: &str, hint: Option<&str>) -> Self {
        Self::Refused {
            sqlstate: server::sqlstate(code),
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
            began: None,
        }
    }

    /// Whether this is [`Failure::ExtensionGone`].
    pub fn is_extension_gone(&self) -> bool {
        matches!(self, Self::ExtensionGone)
    }

    /// Whether the row that was written may be at fault.
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
                let hint = hint
                    .as_deref()
                    .map(|hint| format!(" ({hint})"))
                    .unwrap_or_default();
                warning!("{what}: {message} [{sqlstate}]{hint}");
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
        Self::refused(report.sql_error_code(), report.message(), report.hint())
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

/// What waits, see `_pending_summary`.
pub struct Waiting {
    /// Tokens, counted no further than the limit in each lane.
    pub count: u32,
    /// Whether one of them is urgent.
    pub urgent: bool,
    /// Whether the worker is to leave them alone.
    pub paused: bool,
}

impl Waiting {
    /// From the first three columns.
    fn read(row: &SpiTupleTable<'_>) -> Result<Self, Failure> {
        Ok(Self {
            count: count(required(row, 1)?),
            urgent: required(row, 2)?,
            paused: required(row, 3)?,
        })
    }
}

/// What looking after the outbox left to do, see `_maintain_outbox`.
pub struct Tended {
    /// When a message becomes due or a claim lapses next, in microseconds since 2000-01-01.
    pub next_due: Option<i64>,
    /// Whether there is more to do at once.
    pub more: bool,
    /// Whether others than workers deliver, too.
    pub others: bool,
}

impl Tended {
    /// From three columns, the first of which has this number.
    fn read(row: &SpiTupleTable<'_>, first: usize) -> Result<Self, Failure> {
        let next_due: Option<TimestampWithTimeZone> = row.get(first)?;
        Ok(Self {
            next_due: next_due.map(TimestampWithTimeZone::into_inner),
            more: required(row, first + 1)?,
            others: required(row, first + 2)?,
        })
    }
}

/// What one batch did, see `_run_batch`.
pub struct Batch {
    /// Tokens that became scheduled rows.
    pub collected: u32,
    /// Tokens that were no longer eligible.
    pub skipped: u32,
}

impl Batch {
    /// Tokens that left the queue.
    pub fn moved(&self) -> u32 {
        self.collected.saturating_add(self.skipped)
    }
}

/// Whether those who LISTEN on the channel are to hear of new tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Writers rang the bell and left the NOTIFY to the worker.
    Owed,
    /// Everybody was told.
    Told,
}

impl Outside {
    fn tell(self) {
        if self == Self::Owed {
            notify::notify(&settings::channel());
        }
    }
}

/// Whether senders who LISTEN on the channel of the outbox are to hear that mail is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// It may be news to them.
    Senders,
    /// They were told when it became due.
    Nobody,
}

/// A database with the extension, as this process knows it.
pub struct Session {
    database: String,
    extension: pg_sys::Oid,
    collector: pg_sys::Oid,
}

/// One row of `attach.sql`.
struct Installed {
    version: String,
    schema: String,
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
                Ok(Some(Self {
                    version: required(&row, 1)?,
                    schema: required(&row, 2)?,
                    database: required(&row, 3)?,
                    collector: row.get(4)?,
                    extension: required(&row, 5)?,
                    since: required(&row, 6)?,
                }))
            })
        })
    }
}

/// Has statements find what is in this schema, given as SQL writes it, and PostgreSQL's own before it.
fn set_path(schema: &str) {
    set_option(c"search_path", &format!("pg_catalog, {schema}, pg_temp"));
}

impl Session {
    /// Finds the extension and listens on its channel; `None` when the database does not have it.
    pub fn attach() -> Result<Option<Self>, Failure> {
        // It would end the process, and what is under way with it; the worker has its own bounds.
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        set_option(c"transaction_timeout", "0");
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
        set_option(c"lock_timeout", LOCK_TIMEOUT);
        // Whatever the database's defaults are for its users.
        set_option(c"default_transaction_isolation", "read committed");
        set_option(c"default_transaction_read_only", "off");
        // A plan made for a large queue must not be compiled for each small batch.
        set_option(c"jit", "off");
        // A batch that a crash takes back is in pending again. A row whose commit is not on disk yet cannot
        // be sent: a claim is always brought to disk, and all earlier commits with it.
        set_option(c"synchronous_commit", "off");
        set_option(c"application_name", "mailroom");
        let session = Self {
            database: found.database,
            extension: found.extension,
            collector,
        };
        session.move_in(&found.since)?;
        // Last: whoever listens has to take delivery, or holds up the whole server's notifications.
        session.listen()?;
        Ok(Some(session))
    }

    /// Has this worker be paused if the database is a copy of another with all that waits there.
    fn move_in(&self, since: &str) -> Result<(), Failure> {
        // SAFETY: a plain variable of this process.
        let here = unsafe { pg_sys::MyDatabaseId };
        let paused = self.call(
            include_str!("../../sql/queries/move_in.sql"),
            &[here.into(), since.into()],
            |row| required(row, 1),
        )?;
        if paused {
            warning!(
                "mailroom worker paused itself: database \"{}\" is a copy, and what waits in it may be sent by the \
                 original, too (Delete what is not to be sent, then call mailroom_resume().)",
                self.database
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
                let mut settings: Vec<(String, String)> = Vec::new();
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
                let source = pg_sys::GucSource::PGC_S_DATABASE_USER;
                set_option_as(pg_sys::GucContext::PGC_SUSET, source, &name, &setting);
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
        self.call_at_gate(
            include_str!("../../sql/queries/waiting.sql"),
            &[integer(limit).into()],
            Waiting::read,
        )
    }

    /// Looks at the queue and after the outbox.
    pub fn poll(&self, limit: u32, tell: Tell) -> Result<(Waiting, Tended), Failure> {
        let arguments = [integer(limit).into(), (tell == Tell::Senders).into()];
        self.call_at_gate(
            include_str!("../../sql/queries/poll.sql"),
            &arguments,
            |row| Ok((Waiting::read(row)?, Tended::read(row, 4)?)),
        )
    }

    /// Looks after the outbox alone.
    pub fn tend(&self, tell: Tell) -> Result<Tended, Failure> {
        self.call_at_gate(
            include_str!("../../sql/queries/tend.sql"),
            &[(tell == Tell::Senders).into()],
            |row| Tended::read(row, 1),
        )
    }

    /// Tells senders that mail is due, and does nothing else.
    pub fn tell_of_due(&self) -> Result<(), Failure> {
        self.call(include_str!("../../sql/queries/tell_due.sql"), &[], |_| {
            Ok(())
        })
    }

    /// Tells senders that everything is to be looked at and tried now.
    pub fn tell_of_recheck(&self) -> Result<(), Failure> {
        transaction(None, || {
            wake::notify_recheck();
            Ok(())
        })
    }

    /// Deletes some of what nobody needs any more; whether there is more of it.
    pub fn purge(&self) -> Result<bool, Failure> {
        let purge = include_str!("../../sql/queries/purge.sql");
        self.call_within(PURGE_TIMEOUT, purge, |row| required(row, 1))
    }

    /// Takes one batch and records it; tells outside listeners in the same transaction if they are owed it.
    pub fn run_batch(
        &self,
        limit: u32,
        trigger: Trigger,
        outside: Outside,
    ) -> Result<Batch, Failure> {
        let arguments = [integer(limit).into(), trigger.as_str().into()];
        self.call_at_gate(
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
    pub fn tell_outside(&self) -> Result<(), Failure> {
        transaction(None, || {
            Outside::Owed.tell();
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
                let arguments = [began.into(), trigger.as_str().into(), error.as_str().into()];
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
    /// DROP EXTENSION locks it before its tables, those in any order: whoever comes to it with one of them in hand may
    /// wait in a circle.
    fn check_extension(&self) -> Result<(), Failure> {
        // SAFETY: in a transaction that holds no other lock yet; the name is NUL-terminated; `true` makes a missing one
        // InvalidOid.
        let present = unsafe {
            pg_sys::LockDatabaseObject(
                pg_sys::ExtensionRelationId,
                self.extension,
                0,
                pg_sys::AccessShareLock as pg_sys::LOCKMODE,
            );
            pg_sys::get_extension_oid(c"mailroom".as_ptr(), true)
        };
        if present == self.extension {
            Ok(())
        } else {
            Err(Failure::ExtensionGone)
        }
    }

    /// As [`Self::call`], for statements that take something or look whether there is anything to take.
    fn call_at_gate<R>(
        &self,
        statement: &'static str,
        arguments: &[DatumWithOid<'_>],
        read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.at_gate(STATEMENT_TIMEOUT, || call(statement, arguments, read))
    }

    /// As above, for what is not to take long.
    fn call_within<R>(
        &self,
        timeout: Duration,
        statement: &'static str,
        read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.at_gate(timeout, || call(statement, &[], read))
    }

    fn at_gate<R>(
        &self,
        timeout: Duration,
        body: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        transaction_within(timeout, Some(self.collector), || {
            self.check_extension()?;
            if !restore::pass() {
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

thread_local! {
    /// The statements that were run, prepared. They stay for as long as the process does.
    static PREPARED: RefCell<BTreeMap<&'static str, &'static OwnedPreparedStatement>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Prepares a statement once in this process.
fn prepared(
    client: &SpiClient<'_>,
    statement: &'static str,
    arguments: &[DatumWithOid<'_>],
) -> Result<&'static OwnedPreparedStatement, Failure> {
    if let Some(prepared) = PREPARED.with_borrow(|all| all.get(statement).copied()) {
        return Ok(prepared);
    }
    let types: Vec<PgOid> = arguments.iter().map(|one| PgOid::from(one.oid())).collect();
    let prepared = Box::leak(Box::new(client.prepare_mut(statement, &types)?.keep()));
    PREPARED.with_borrow_mut(|all| all.insert(statement, prepared));
    Ok(prepared)
}

/// Runs one statement that returns one row.
fn call<R>(
    statement: &'static str,
    arguments: &[DatumWithOid<'_>],
    read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    Spi::connect_mut(|client: &mut SpiClient<'_>| {
        let prepared = prepared(client, statement, arguments)?;
        let rows = client.update(prepared, Some(1), arguments)?;
        read(&rows.first())
    })
}

fn required<T: FromDatum + IntoDatum>(
    row: &SpiTupleTable<'_>,
    column: usize,
) -> Result<T, Failure> {
    row.get(column)?.ok_or_else(|| {
        Failure::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &format!("column {column} of an internal query is null"),
            None,
        )
    })
}

fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn count(value: i32) -> u32 {
    value.unsigned_abs()
}

/// Sets an option of this process, as SET does.
fn set_option(name: &CStr, value: &str) {
    let source = pg_sys::GucSource::PGC_S_SESSION;
    set_option_as(pg_sys::GucContext::PGC_USERSET, source, name, value);
}

/// Sets an option of this process, as if it came from there.
fn set_option_as(
    context: pg_sys::GucContext::Type,
    source: pg_sys::GucSource::Type,
    name: &CStr,
    value: &str,
) {
    let Ok(value) = CString::new(value) else {
        return;
    };
    // SAFETY: main thread; both strings are NUL-terminated and copied by the callee.
    unsafe { pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), context, source) };
}
