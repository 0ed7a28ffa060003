//! A transaction of the worker: with bounded rights and time, ended by SIGTERM, leaving nothing in memory.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgrx::prelude::*;

use super::Failure;
use crate::server;

/// How long the statements of a transaction of the worker may run. A batch takes milliseconds; what takes this long is
/// stuck.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

thread_local! {
    /// Memory for what the server allocates between transactions; null until the first use.
    static SCRATCH: Cell<pg_sys::MemoryContext> = const { Cell::new(std::ptr::null_mut()) };
}

/// Empties the scratch memory and makes it the current one. Not within a transaction.
///
/// The server's own main loop does the same in every round: what its functions leave behind out there would
/// otherwise stay for as long as the process does.
fn renew_scratch() {
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
    // SAFETY: nobody keeps anything of it from one transaction to the next.
    unsafe {
        pg_sys::MemoryContextReset(SCRATCH.get());
        pg_sys::CurrentMemoryContext = SCRATCH.get();
    }
}

/// Whether this process was told to stop.
pub fn stop_requested() -> bool {
    // SAFETY: sig_atomic_t of this process, written by its signal handler; one volatile read.
    unsafe { (&raw const pg_sys::ShutdownRequestPending).read_volatile() != 0 }
}

/// Whether a transaction is open, for the signal handlers.
static IN_TRANSACTION: AtomicBool = AtomicBool::new(false);

/// SIGTERM ends a running statement, too: it may be waiting for a lock that is held for hours. SIGINT ends nothing else:
/// outside of a transaction an error would end the process, and what is under way with it.
pub fn install_signal_handlers() {
    server::on_sigterm(stop);
    server::on_cancel(cancel);
}

unsafe extern "C-unwind" fn stop(signal: i32) {
    // SAFETY: what signal handlers of the server do: set flags of this process, set its latch.
    unsafe {
        (&raw mut pg_sys::ShutdownRequestPending).write_volatile(1);
        cancel(signal);
    }
}

unsafe extern "C-unwind" fn cancel(_signal: i32) {
    // SAFETY: as above.
    unsafe {
        if IN_TRANSACTION.load(Ordering::Relaxed) {
            (&raw mut pg_sys::QueryCancelPending).write_volatile(1);
            (&raw mut pg_sys::InterruptPending).write_volatile(1);
        }
        pg_sys::SetLatch(pg_sys::MyLatch);
    }
}

/// Runs `body` in a transaction, committed on `Ok` and rolled back on `Err` and on any PostgreSQL error.
///
/// With `role`, current_user is that role and the operation is security-restricted until after the commit,
/// so deferred triggers are held in as well.
pub fn transaction<R>(
    role: Option<pg_sys::Oid>,
    body: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    transaction_within(STATEMENT_TIMEOUT, role, body)
}

/// As [`transaction`], with other bounds.
pub fn transaction_within<R>(
    timeout: Duration,
    role: Option<pg_sys::Oid>,
    body: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    let began = server::now();
    IN_TRANSACTION.store(true, Ordering::Relaxed);
    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| {
        begin(timeout, role);
        let value = body()?;
        // SAFETY: the transaction and the snapshot that `begin` opened.
        unsafe {
            // What is left to triggers has its bounds as the statements have; the wait for standbys, as with any
            // session, has none but a stop.
            pg_sys::AfterTriggerFireDeferred();
            server::disarm_statement_timeout();
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        }
        Ok(value)
    }))
    .catch_others(|error| Err(error.into()))
    .execute();
    if outcome.is_err() {
        // SAFETY: whatever state the transaction is in, this is how the server's own main loop leaves it.
        unsafe { pg_sys::AbortCurrentTransaction() };
    }
    IN_TRANSACTION.store(false, Ordering::Relaxed);
    end();
    outcome.map_err(|failure| match failure {
        Failure::Refused {
            sqlstate,
            message,
            hint,
            began: None,
        } => Failure::Refused {
            sqlstate,
            message,
            hint,
            began: Some(began),
        },
        other => other,
    })
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
    }
    server::arm_statement_timeout(timeout);
}

fn end() {
    renew_scratch();
    server::disarm_statement_timeout();
    // SAFETY: main thread, no transaction open. A cancel that came too late for its statement must not hit
    // the wait that follows.
    unsafe {
        (&raw mut pg_sys::QueryCancelPending).write_volatile(0);
        pg_sys::SetUserIdAndSecContext(pg_sys::GetSessionUserId(), 0);
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}
