//! Transactions: the state of the current one, callbacks at its end, and running one in a worker.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use super::signals;

/// Start time of the transaction, in microseconds since 2000-01-01.
pub fn start() -> i64 {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

/// Nesting level of the (sub)transaction, 1 for the transaction itself.
pub fn level() -> i32 {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() }
}

/// What tells snapshots of this session apart: two with the same key see the same rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SnapshotKey {
    transaction_start: i64,
    xmin: pg_sys::TransactionId,
    xmax: pg_sys::TransactionId,
    /// Number of transactions in progress. Of those below `xmax`, ever fewer are.
    in_progress: (u32, i32),
    command: pg_sys::CommandId,
}

/// Snapshot of the statement that runs, or of the query inside the function that runs.
pub fn active_snapshot() -> Option<SnapshotKey> {
    // SAFETY: reads the state of this process's transaction. A snapshot that is active is valid until it is popped, which
    // does not happen here.
    unsafe {
        if !pg_sys::ActiveSnapshotSet() {
            return None;
        }
        let snapshot = pg_sys::GetActiveSnapshot();
        Some(SnapshotKey {
            transaction_start: start(),
            xmin: (*snapshot).xmin,
            xmax: (*snapshot).xmax,
            in_progress: ((*snapshot).xcnt, (*snapshot).subxcnt),
            command: (*snapshot).curcid,
        })
    }
}

/// Whether a transaction is open, so that the catalogs can be read.
pub fn is_open() -> bool {
    // SAFETY: reads the state of this process's transaction.
    unsafe { pg_sys::IsTransactionState() }
}

/// Whether the statement runs in a transaction block, not in a transaction of its own.
pub fn is_block() -> bool {
    // SAFETY: reads the state of this process's transaction.
    unsafe { pg_sys::IsTransactionBlock() }
}

/// Calls a STABLE function from `bigint[]` to `bigint[]` with the latest snapshot. It sees what other transactions have
/// committed, even if this one keeps its first snapshot (REPEATABLE READ, SERIALIZABLE). The function is
/// given by OID, because a name would be in the encoding of the database. Returns `None` if it has other types.
pub fn call_with_latest_snapshot(
    function: pg_sys::Oid,
    argument: Vec<Option<i64>>,
) -> Option<Vec<Option<i64>>> {
    // SAFETY: in a transaction. The server checks that the function exists, and its types are checked here. The snapshot is
    // pushed and popped as a pair; after an error, the end of the (sub)transaction pops it.
    unsafe {
        let (mut types, mut count) = (std::ptr::null_mut(), 0);
        let result = pg_sys::get_func_signature(function, &raw mut types, &raw mut count);
        if result != pg_sys::INT8ARRAYOID || count != 1 || *types != pg_sys::INT8ARRAYOID {
            return None;
        }
        let argument = argument.into_datum()?;
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let value = pg_sys::OidFunctionCall1Coll(function, pg_sys::InvalidOid, argument);
        let value = FromDatum::from_datum(value, false);
        pg_sys::PopActiveSnapshot();
        value
    }
}

/// Makes the commit of this transaction wait until it is on disk, with any setting of synchronous_commit.
pub fn force_sync_commit() {
    // SAFETY: in a transaction; sets a flag that lasts until the transaction ends.
    unsafe { pg_sys::ForceSyncCommit() };
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was committed. The callback must not fail: no allocation, no error, and no lock that may be held for long.
    Commit,
    /// It was rolled back.
    Abort,
    /// It was prepared; COMMIT PREPARED or ROLLBACK PREPARED ends it later, in any session.
    Prepare,
}

/// How a subtransaction ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SubEnd {
    /// It became part of its parent.
    Commit,
    /// It was rolled back.
    Abort,
}

type AtSubEnd = fn(SubEnd, i32);

thread_local! {
    static AT_END: Cell<Option<fn(End)>> = const { Cell::new(None) };
    static AT_SUB_END: Cell<Option<AtSubEnd>> = const { Cell::new(None) };
}

/// From now on, calls these functions at the end of every transaction and subtransaction of this process; the latter
/// with the [`level`] of the subtransaction that ends. Later calls have no effect: callbacks are never unregistered.
pub fn at_end(transaction: fn(End), subtransaction: AtSubEnd) {
    if AT_END.get().is_some() {
        return;
    }
    AT_END.set(Some(transaction));
    AT_SUB_END.set(Some(subtransaction));
    // SAFETY: guarded functions of the expected signatures, which need no argument.
    unsafe {
        pg_sys::RegisterXactCallback(Some(at_transaction_event), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(at_subtransaction_event), std::ptr::null_mut());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_event(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    let end = match event {
        XACT_EVENT_COMMIT => End::Commit,
        XACT_EVENT_ABORT => End::Abort,
        XACT_EVENT_PREPARE => End::Prepare,
        _ => return,
    };
    if let Some(at_end) = AT_END.get() {
        at_end(end);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_subtransaction_event(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::{SUBXACT_EVENT_ABORT_SUB, SUBXACT_EVENT_COMMIT_SUB};
    let end = match event {
        SUBXACT_EVENT_COMMIT_SUB => SubEnd::Commit,
        SUBXACT_EVENT_ABORT_SUB => SubEnd::Abort,
        _ => return,
    };
    if let Some(at_end) = AT_SUB_END.get() {
        at_end(end, level());
    }
}

thread_local! {
    /// Memory context for what the server allocates between transactions; null until the first use.
    static SCRATCH: Cell<pg_sys::MemoryContext> = const { Cell::new(std::ptr::null_mut()) };
}

/// Resets the scratch memory context and makes it the current one. Not within a transaction.
///
/// The server's own main loop does the same in every iteration: otherwise, what its functions leave allocated outside
/// transactions would stay until the process ends.
pub(super) fn renew_scratch() {
    if SCRATCH.get().is_null() {
        // SAFETY: main thread; the name is static; the context lives as long as the process.
        SCRATCH.set(unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"mailroom worker".as_ptr(),
                pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
                pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
                pg_sys::ALLOCSET_SMALL_MAXSIZE as usize,
            )
        });
    }
    // SAFETY: nothing in the context is kept from one transaction to the next.
    unsafe {
        pg_sys::MemoryContextReset(SCRATCH.get());
        pg_sys::CurrentMemoryContext = SCRATCH.get();
    }
}

/// Runs `body` in a transaction of a worker, committed on `Ok` and rolled back on `Err` and on any PostgreSQL error.
/// After `timeout`, counted from the start of the transaction, the statement that is running is cancelled.
///
/// With `role`, current_user is that role and the operation is security-restricted until after the commit. Deferrable
/// constraints and triggers are then immediate, because the server defers none in such an operation.
///
/// # Errors
/// The error of `body`, or the error that PostgreSQL raised.
pub fn run<R, E: From<CaughtError>>(
    timeout: Duration,
    role: Option<pg_sys::Oid>,
    body: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    if is_open() {
        error!("mailroom worker: a transaction within another one");
    }
    signals::set_in_transaction(true);
    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| {
        begin(timeout, role);
        let value = body()?;
        // SAFETY: ends the transaction and pops the snapshot that `begin` opened.
        unsafe {
            // Deferred triggers of a transaction without a role run before the timeout is disarmed, so it applies to
            // them. The wait for standbys has no timeout, as in any session; only a stop or a cancel ends it.
            pg_sys::AfterTriggerFireDeferred();
            disarm_statement_timeout();
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        }
        Ok(value)
    }))
    .catch_others(|error| Err(error.into()))
    .execute();
    if outcome.is_err() {
        // SAFETY: the server's own main loop ends a transaction like this, in every state that it may be in.
        unsafe { pg_sys::AbortCurrentTransaction() };
    }
    signals::set_in_transaction(false);
    end();
    outcome
}

fn begin(timeout: Duration, role: Option<pg_sys::Oid>) {
    // SAFETY: main thread of a connected worker, no transaction open. The user is changed inside the
    // transaction, so an abort restores it; `end` restores it after a commit.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::pgstat_report_activity(
            pg_sys::BackendState::STATE_RUNNING,
            c"mailroom worker: batch".as_ptr(),
        );
        pg_sys::StartTransactionCommand();
        if let Some(role) = role {
            let context =
                pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION;
            pg_sys::SetUserIdAndSecContext(role, context as i32);
        }
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        if role.is_some() {
            set_constraints_immediate();
        }
    }
    arm_statement_timeout(timeout);
}

/// SET CONSTRAINTS ALL IMMEDIATE.
fn set_constraints_immediate() {
    let mut all = pg_sys::ConstraintsSetStmt {
        type_: pg_sys::NodeTag::T_ConstraintsSetStmt,
        constraints: std::ptr::null_mut(),
        deferred: false,
    };
    // SAFETY: in a transaction; the statement is only read.
    unsafe { pg_sys::AfterTriggerSetState(&raw mut all) };
}

fn end() {
    renew_scratch();
    disarm_statement_timeout();
    // A cancel that came too late for its statement must not interrupt the wait that follows.
    signals::forget_cancel();
    // SAFETY: main thread, no transaction open.
    unsafe {
        pg_sys::SetUserIdAndSecContext(pg_sys::GetSessionUserId(), 0);
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}

// Declared in src/include/utils/timeout.h, which pgrx does not bind; the same in PostgreSQL 15 to 18.
unsafe extern "C-unwind" {
    fn enable_timeout_after(id: std::ffi::c_int, delay_ms: std::ffi::c_int);
    fn disable_timeout(id: std::ffi::c_int, keep_indicator: bool);
}

/// `STATEMENT_TIMEOUT` of `enum TimeoutId`.
const STATEMENT_TIMEOUT: std::ffi::c_int = 3;

/// Makes the server cancel the running statement after `limit`. The server itself arms this timeout only for clients.
fn arm_statement_timeout(limit: Duration) {
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the timeout is registered in every process that is connected to a database; main thread.
    unsafe { enable_timeout_after(STATEMENT_TIMEOUT, millis) };
}

/// Undoes [`arm_statement_timeout`].
fn disarm_statement_timeout() {
    // SAFETY: as in `arm_statement_timeout`; harmless if the timeout is not armed.
    unsafe { disable_timeout(STATEMENT_TIMEOUT, false) };
}
