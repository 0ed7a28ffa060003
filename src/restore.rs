//! What a restored dump asks of us: triggers that step aside, and a lock that keeps mail back until all rows are there.
//!
//! A dump has the rows as they were: loading them must not give the accounts new tokens, queue the tokens again
//! or stamp anything. So our triggers ask [`in_progress`], and do nothing in a session that restores. It is known by
//! settings that pg_dump writes at the top of every script and that pg_restore makes in each of its sessions; they
//! count only for a role that could as well disable the triggers.
//!
//! The rows come table by table, each in a transaction of its own, and perhaps in several sessions at once. A token
//! in `pending` whose row in `tokens` is not there yet would be taken for one that was deleted. So from its first row
//! of ours to its end a restoring session holds the *restore lock*, which a transaction that hands out, claims, answers or
//! purges takes in a mode that conflicts with it. Such a transaction never waits for the lock: it is refused, and the
//! worker waits. The restoring session waits for the transactions that have the lock. Neither mode conflicts with
//! itself.

#![forbid(unsafe_code)]

use std::cell::Cell;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::pg::locks::{Lock, Mode, lock_for_session, try_lock};
use crate::pg::tuple::schema_of_table;
use crate::pg::{catalog, options, process, transaction};
use crate::shared_memory::announce;

thread_local! {
    /// Whose session was last found to restore, and the start of the transaction.
    static BEGUN: Cell<Option<([pg_sys::Oid; 2], i64)>> = const { Cell::new(None) };
    /// Whether this process wakes the worker when it ends.
    static WAKES_AT_EXIT: Cell<bool> = const { Cell::new(false) };
}

/// Whether this session restores a dump. For triggers: until it ends, nothing is handed out from now on.
///
/// Costs next to nothing where it does not. Functions may pin their search_path, which a dump sets too, so that one
/// is not among what is asked for.
pub fn in_progress() -> bool {
    // The worker has the settings of its database, which may be these.
    !announce::is_worker()
        && options::has_settings_of_a_dump()
        && options::is_row_security_off()
        && may_restore()
}

/// Whether this transaction's role may restore; if so, this session has the restore lock.
fn may_restore() -> bool {
    let (roles, transaction) = (catalog::session_roles(), transaction::start());
    // Triggers for each row ask for each row.
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
    // CREATE EXTENSION changes the other settings by itself.
    options::is_row_security_off() && options::is_creating_extension()
}

/// Takes the restore lock until this session ends; waits for the transactions that hand out.
fn lock() {
    lock_for_session(Lock::RESTORE, Mode::Share);
    if !WAKES_AT_EXIT.replace(true) {
        log!(
            "mailroom: a dump is being restored, nothing is handed out in this database until this session ends"
        );
        // After the locks are released, and while this process can still wake another.
        process::at_exit(announce::recheck_now);
    }
}

/// Keeps a restore from beginning until this transaction ends; false while a session restores a dump.
pub fn may_hand_out() -> bool {
    try_lock(Lock::RESTORE, Mode::RowExclusive)
}

/// As [`may_hand_out`], for a function that cannot go on without.
///
/// # Errors
/// 55000 while a session restores a dump.
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

/// What a trigger function gives back: BEFORE … FOR EACH STATEMENT, nothing.
type Nothing<'a> = Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, PgTriggerError>;

/// Before rows come into a table that is handed out from.
#[pg_trigger(sql = false)]
fn _note_restore<'a>(_trigger: &'a PgTrigger<'a>) -> Nothing<'a> {
    // Which takes the restore lock.
    in_progress();
    Ok(None)
}

/// Before rows come into `tokens`: has them wait for no account while the accounts are being restored elsewhere.
///
/// pg_restore orders rows by foreign keys, but loses that order when it works in several sessions. Tokens that come
/// before the first account cannot pass their foreign key, and come from a dump in which they did.
#[pg_trigger(sql = false)]
fn _tokens_before_accounts<'a>(trigger: &'a PgTrigger<'a>) -> Nothing<'a> {
    if in_progress() && !transaction::is_block() && has_no_account(trigger) {
        // A statement of its own is a transaction of its own, with which the setting ends; other sessions have the
        // accounts restored first.
        options::disable_triggers_until_commit();
    }
    Ok(None)
}

/// Whether `accounts`, beside the table of the trigger, has no row that the running statement sees.
fn has_no_account(trigger: &PgTrigger<'_>) -> bool {
    let Some(schema) = schema_of_table(trigger) else {
        return false;
    };
    let query = schema.between("SELECT FROM ", ".accounts LIMIT 1");
    let found = Spi::connect(|client| client.select(&query, Some(1), &[]).map(|rows| rows.len()));
    found.unwrap_or_report() == 0
}
