//! SIGTERM and SIGINT in a worker.
//!
//! SIGTERM ends a running statement, too: it may be waiting for a lock that is held for hours. SIGINT ends nothing else:
//! outside a transaction an error would end the process, and the requests that it has in flight with it.

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;

use super::version::set_signal_handler;

// Declared in src/include/tcop/tcopprot.h; the same in PostgreSQL 15 to 18.
unsafe extern "C-unwind" {
    fn die(signal: i32);
}

/// Whether a transaction is open, for the signal handlers.
static IN_TRANSACTION: AtomicBool = AtomicBool::new(false);

/// Has SIGTERM end this process wherever it looks for interrupts, as it does with sessions.
pub fn die_on_sigterm() {
    // SAFETY: the server's own handler.
    unsafe { set_signal_handler(pg_sys::SIGTERM, die) };
}

/// Ignores SIGINT.
pub fn ignore_cancel() {
    // SAFETY: the handler does nothing.
    unsafe { set_signal_handler(pg_sys::SIGINT, ignore) };
}

/// Has SIGTERM set the flag that [`stop_requested`] reads and cancel the statement that runs, and SIGINT only the latter.
pub fn install_handlers_of_worker() {
    // SAFETY: see the handlers.
    unsafe {
        set_signal_handler(pg_sys::SIGTERM, stop);
        set_signal_handler(pg_sys::SIGINT, cancel);
    }
}

/// Whether this process was told to stop.
pub fn stop_requested() -> bool {
    // SAFETY: sig_atomic_t of this process, written by its signal handler; one volatile read.
    unsafe { (&raw const pg_sys::ShutdownRequestPending).read_volatile() != 0 }
}

/// Says whether a transaction is open, so that SIGINT and SIGTERM may cancel its statement.
pub fn set_in_transaction(open: bool) {
    IN_TRANSACTION.store(open, Ordering::Relaxed);
}

/// Forgets a cancellation that came too late for its statement. No transaction may be open.
pub fn forget_cancel() {
    // SAFETY: sig_atomic_t of this process.
    unsafe { (&raw mut pg_sys::QueryCancelPending).write_volatile(0) };
}

unsafe extern "C-unwind" fn ignore(_signal: i32) {}

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
