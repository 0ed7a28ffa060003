//! SIGTERM and SIGINT in a worker.
//!
//! SIGTERM also cancels the running statement, which may be waiting for a lock that is held for hours. SIGINT cancels
//! the running statement only: outside a transaction, an error would end the process and its requests in flight.

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;

use super::version::set_signal_handler;

// Declared in src/include/tcop/tcopprot.h; the same in PostgreSQL 15 to 18.
unsafe extern "C-unwind" {
    fn die(signal: i32);
}

/// Whether a transaction is open, for the signal handlers.
static IN_TRANSACTION: AtomicBool = AtomicBool::new(false);

/// Makes SIGTERM end this process at its next check for interrupts, as in a session.
pub fn die_on_sigterm() {
    // SAFETY: the server's own handler.
    unsafe { set_signal_handler(pg_sys::SIGTERM, die) };
}

/// Ignores SIGINT.
pub fn ignore_cancel() {
    // SAFETY: the handler does nothing.
    unsafe { set_signal_handler(pg_sys::SIGINT, ignore) };
}

/// Makes SIGTERM set the flag that [`stop_requested`] reads and cancel the running statement; SIGINT only cancels it.
pub fn install_handlers_of_worker() {
    // SAFETY: see the handlers.
    unsafe {
        set_signal_handler(pg_sys::SIGTERM, stop);
        set_signal_handler(pg_sys::SIGINT, cancel);
    }
}

/// Whether SIGTERM has asked this process to stop.
pub fn stop_requested() -> bool {
    // SAFETY: sig_atomic_t of this process, written by its signal handler; one volatile read.
    unsafe { (&raw const pg_sys::ShutdownRequestPending).read_volatile() != 0 }
}

/// Records whether a transaction is open: only then do SIGINT and SIGTERM cancel a statement.
pub fn set_in_transaction(open: bool) {
    IN_TRANSACTION.store(open, Ordering::Relaxed);
}

/// Clears a cancel request that came too late for its statement. No transaction may be open.
pub fn forget_cancel() {
    // SAFETY: sig_atomic_t of this process.
    unsafe { (&raw mut pg_sys::QueryCancelPending).write_volatile(0) };
}

unsafe extern "C-unwind" fn ignore(_signal: i32) {}

unsafe extern "C-unwind" fn stop(signal: i32) {
    // SAFETY: does only what the server's own signal handlers do: sets flags of this process and its latch.
    unsafe {
        (&raw mut pg_sys::ShutdownRequestPending).write_volatile(1);
        cancel(signal);
    }
}

unsafe extern "C-unwind" fn cancel(_signal: i32) {
    // SAFETY: as in `stop`.
    unsafe {
        if IN_TRANSACTION.load(Ordering::Relaxed) {
            (&raw mut pg_sys::QueryCancelPending).write_volatile(1);
            (&raw mut pg_sys::InterruptPending).write_volatile(1);
        }
        pg_sys::SetLatch(pg_sys::MyLatch);
    }
}
