//! Restoring a dump: triggers that leave restored rows as they are, and a lock that prevents hand-out until all are
//! there.
//!
//! A dump has the rows as they were: loading them must not create tokens for accounts, enqueue tokens again or set
//! times. So our triggers call [`in_progress`], and do none of that in a session that restores a dump. Such a session
//! has the settings that pg_dump writes at the top of every script, and that pg_restore makes in each of its sessions.
//! They count only for a role that could also disable the triggers.
//!
//! The rows are loaded table by table, usually each in its own transaction, and possibly in several sessions at once.
//! A token in `pending` whose row in `tokens` is not loaded yet would be taken for a deleted one. So a session that
//! restores holds the *restore lock* from its first row of ours until it ends. A transaction that hands out, claims,
//! answers requests or purges acquires it in a conflicting mode. It never waits for the lock: it is refused, and the
//! worker tries again later. The restoring session waits for the transactions that hold the lock. Neither mode
//! conflicts with itself.

#![forbid(unsafe_code)]

use std::cell::Cell;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::pg::locks::{Lock, Mode, lock_for_session, try_lock};
use crate::pg::tuple::schema_of_table;
use crate::pg::{catalog, options, process, transaction};
use crate::shared_memory::announce;

thread_local! {
    /// The roles that were last found to restore a dump, and the start of that transaction.
    static BEGUN: Cell<Option<([pg_sys::Oid; 2], i64)>> = const { Cell::new(None) };
    /// Whether this process wakes the worker when it ends.
    static WAKES_AT_EXIT: Cell<bool> = const { Cell::new(false) };
}

/// Whether this session restores a dump, for triggers. If so, nothing is handed out until the session ends.
///
/// Costs almost nothing in other sessions. Does not check search_path, which a dump sets too, because callers may pin
/// it.
pub fn in_progress() -> bool {
    // The worker has the settings of its database, which may be the same.
    !announce::is_worker()
        && options::has_settings_of_a_dump()
        && options::is_row_security_off()
        && may_restore()
}

/// Whether the roles of this session may restore a dump; if so, this session then holds the restore lock.
fn may_restore() -> bool {
    let (roles, transaction) = (catalog::session_roles(), transaction::start());
    // Row triggers call this for each row.
    if BEGUN.get() == Some((roles, transaction)) {
        return true;
    }
    if !roles.iter().any(|role| catalog::owns_extension(*role)) {
        return false;
    }
    lock();
    BEGUN.set(Some((roles, transaction)));
    true
}

/// Whether CREATE EXTENSION runs in a session that restores a dump.
pub fn is_installing() -> bool {
    // CREATE EXTENSION itself changes the other settings.
    options::is_row_security_off() && options::is_creating_extension()
}

/// Acquires the restore lock until this session ends; waits for the transactions that hand out.
fn lock() {
    lock_for_session(Lock::RESTORE, Mode::Share);
    if !WAKES_AT_EXIT.replace(true) {
        log!(
            "mailroom: a dump is being restored, nothing is handed out in this database until this session ends"
        );
        // Runs after the locks are released, while this process can still wake another.
        process::at_exit(announce::recheck_now);
    }
}

/// Keeps a restore from beginning until this transaction ends. Returns false if a session restores a dump or waits to.
pub fn may_hand_out() -> bool {
    try_lock(Lock::RESTORE, Mode::RowExclusive)
}

/// As [`may_hand_out`], for a function that must not continue without the lock.
///
/// # Errors
/// 55000 if a session restores a dump or waits to.
pub fn refuse_while_restoring() -> Result<(), ErrorReport> {
    if may_hand_out() {
        return Ok(());
    }
    Err(ErrorReport::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "nothing is handed out while a dump is being restored",
        function_name!(),
    )
    .set_detail("A session restores rows of mailroom into this database, or waits to.")
    .set_hint("Try again when that session has ended."))
}

#[pg_extern(sql = false)]
fn _is_restoring() -> bool {
    in_progress()
}

#[pg_extern(sql = false)]
fn _refuse_while_restoring() -> Result<(), ErrorReport> {
    refuse_while_restoring()
}

/// The result of a trigger BEFORE … FOR EACH STATEMENT, which returns no row.
type Nothing<'a> = Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, PgTriggerError>;

/// Runs before an INSERT into a table from which tokens, mail or requests are taken.
#[pg_trigger(sql = false)]
fn _note_restore<'a>(_trigger: &'a PgTrigger<'a>) -> Nothing<'a> {
    // Called because it acquires the restore lock.
    in_progress();
    Ok(None)
}

/// Runs before an INSERT into `tokens`: turns foreign keys off for rows of a dump that come before any account.
///
/// pg_restore orders tables by foreign keys, but not when it works in several sessions. Tokens that are loaded before
/// the first account would violate their foreign key; it held in the database that was dumped.
#[pg_trigger(sql = false)]
fn _tokens_before_accounts<'a>(trigger: &'a PgTrigger<'a>) -> Nothing<'a> {
    if in_progress() && !transaction::is_block() && has_no_account(trigger) {
        // Outside a transaction block the setting ends with the statement. A restore within a block runs in one
        // session, which loads the accounts first.
        options::disable_triggers_until_commit();
    }
    Ok(None)
}

/// Whether the running statement sees no row of `accounts`, in the schema of the trigger's table.
fn has_no_account(trigger: &PgTrigger<'_>) -> bool {
    let Some(schema) = schema_of_table(trigger) else {
        return false;
    };
    let query = schema.between("SELECT FROM ", ".accounts LIMIT 1");
    let found = Spi::connect(|client| client.select(&query, Some(1), &[]).map(|rows| rows.len()));
    found.unwrap_or_report() == 0
}
