//! What a restored dump asks of us: triggers that step aside, and a gate that keeps mail in until it is all there.
//!
//! A dump has the rows as they were: whoever loads it must not give the accounts new tokens, queue the tokens again
//! or stamp anything. So our triggers ask [`in_progress`], and do nothing in a session that restores. It is known by
//! settings that pg_dump writes at the top of every script and that pg_restore makes in each of its sessions; they
//! count only for a role that could as well disable the triggers.
//!
//! The rows come table by table, each in a transaction of its own, and perhaps in several sessions at once. A token
//! in `pending` whose row in `tokens` is not there yet would be taken for one that was deleted. So from its first row
//! of ours to its end a restoring session holds a lock, the *gate*, which whoever hands out, claims, answers or purges
//! takes in a mode that conflicts with it, for the length of a transaction. They never wait for it: they are refused,
//! and the worker stands by. The restoring session waits for those who are at it. Neither mode conflicts with itself.

use std::cell::Cell;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::{locks, server, wake};

/// The gate of this database: an advisory lock, with a key that SQL cannot ask for (`objsubid` 3 in `pg_locks`).
fn gate() -> pg_sys::LOCKTAG {
    locks::tag(locks::Kind::Gate, u64::from_be_bytes(*b"mailroom"))
}

/// The mode of those who restore.
const CLOSED: pg_sys::LOCKMODE = pg_sys::ShareLock as pg_sys::LOCKMODE;
/// The mode of those who hand out.
const PASSING: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;

thread_local! {
    /// Whose session was last found to restore, and the start of the transaction.
    static BEGUN: Cell<Option<([pg_sys::Oid; 2], pg_sys::TimestampTz)>> = const { Cell::new(None) };
    /// Whether this process tells the worker when it ends.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this session has the settings of a restore, except for those that CREATE EXTENSION changes by itself.
fn looks_like_one() -> bool {
    // SAFETY: a plain variable of this process.
    !unsafe { pg_sys::row_security }
}

/// Whether this session restores a dump. For triggers: until it ends, nothing is handed out from now on.
///
/// Costs next to nothing where it does not. Functions may pin their search_path, which a dump sets too, so that one
/// is not among what is asked for.
pub fn in_progress() -> bool {
    // SAFETY: plain variables of this process.
    let has_settings = unsafe {
        !pg_sys::check_function_bodies
            && looks_like_one()
            && pg_sys::client_min_messages == pg_sys::WARNING as i32
    };
    has_settings && begun()
}

/// Whether this transaction's role may restore; if so, the gate is closed by now.
fn begun() -> bool {
    // Who logged in, and whom SET ROLE made of them (`pg_restore --role`). Not the current user, who within most
    // triggers is the functions' owner.
    // SAFETY: in a transaction, as every trigger is.
    let (roles, transaction) = unsafe {
        (
            [pg_sys::GetSessionUserId(), pg_sys::GetOuterUserId()],
            pg_sys::GetCurrentTransactionStartTimestamp(),
        )
    };
    // Triggers for each row ask for each row.
    if BEGUN.get() == Some((roles, transaction)) {
        return true;
    }
    if !roles
        .iter()
        .any(|role| server::owns_extension(c"mailroom", *role))
    {
        return false;
    }
    close();
    BEGUN.set(Some((roles, transaction)));
    true
}

/// Whether CREATE EXTENSION runs in a session that restores a dump.
pub fn is_installing() -> bool {
    // SAFETY: a plain variable of this process.
    looks_like_one() && unsafe { pg_sys::creating_extension }
}

/// Closes the gate until this session ends; waits for those who are handing out.
fn close() {
    let gate = gate();
    // SAFETY: in a transaction; an error of the server's is passed on. The lock is counted once, however often a
    // session comes here.
    unsafe {
        let held = pg_sys::LockAcquire(&gate, CLOSED, true, false);
        if held != pg_sys::LockAcquireResult::LOCKACQUIRE_OK {
            pg_sys::LockRelease(&gate, CLOSED, true);
        }
        if !TELLS.replace(true) {
            log!(
                "mailroom: a dump is being restored, nothing is handed out in this database until this session ends"
            );
            // After the locks are released, and while this process can still wake another.
            pg_sys::on_shmem_exit(Some(tell_worker), pg_sys::Datum::from(0));
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn tell_worker(_code: i32, _argument: pg_sys::Datum) {
    wake::recheck_now();
}

/// Passes the gate for the length of the transaction; false while somebody restores a dump.
pub fn pass() -> bool {
    // SAFETY: in a transaction.
    let held = unsafe { pg_sys::LockAcquire(&gate(), PASSING, false, true) };
    held != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// As [`pass`], for those who cannot do without.
///
/// # Errors
/// 55000 while somebody restores a dump.
pub fn pass_or_refuse() -> Result<(), ErrorReport> {
    if pass() {
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
fn _restores() -> bool {
    in_progress()
}

#[pg_extern(sql = false)]
fn _pass_gate() -> Result<(), ErrorReport> {
    pass_or_refuse()
}

/// What a trigger function gives back: BEFORE … FOR EACH STATEMENT, nothing.
type Nothing<'a> = Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, PgTriggerError>;

/// Before rows come into a table that is handed out from.
#[pg_trigger(sql = false)]
fn _mind_restore<'a>(_trigger: &'a PgTrigger<'a>) -> Nothing<'a> {
    // Which closes the gate.
    in_progress();
    Ok(None)
}

/// Before rows come into `tokens`: has them wait for no account while the accounts are being restored elsewhere.
///
/// pg_restore orders rows by foreign keys, but loses that order when it works in several sessions. Tokens that come
/// before the first account cannot pass their foreign key, and come from a dump in which they did.
#[pg_trigger(sql = false)]
fn _tokens_before_accounts<'a>(trigger: &'a PgTrigger<'a>) -> Nothing<'a> {
    // SAFETY: asks for the state of this process's transaction.
    if in_progress() && !unsafe { pg_sys::IsTransactionBlock() } && has_no_account(trigger)? {
        // SAFETY: main thread; both strings are NUL-terminated. A statement of its own is a transaction of its own,
        // with which the setting ends; other sessions have the accounts restored first.
        unsafe {
            pg_sys::set_config_option(
                c"session_replication_role".as_ptr(),
                c"replica".as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_LOCAL,
                true,
                0,
                false,
            );
        }
    }
    Ok(None)
}

/// Whether `accounts`, beside the table of the trigger, has no row that the running statement sees.
fn has_no_account(trigger: &PgTrigger<'_>) -> Result<bool, PgTriggerError> {
    let schema = pgrx::spi::quote_identifier(trigger.table_schema()?);
    let query = format!("SELECT FROM {schema}.accounts LIMIT 1");
    let found = Spi::connect(|client| client.select(&query, Some(1), &[]).map(|rows| rows.len()));
    Ok(found.unwrap_or_report() == 0)
}
