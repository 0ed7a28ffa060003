//! LISTEN and NOTIFY by what the SQL commands call.
//!
//! The command LISTEN is refused in a background worker, but what it calls works there: `Async_Listen` inside
//! a transaction registers the interest, and `ProcessNotifyInterrupt` outside one takes delivery. A listener
//! must always take delivery: one that does not holds the whole cluster's notification queue.

use std::ffi::CStr;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

use super::transaction;

// Declared in src/include/commands/async.h; the same in PostgreSQL 15 to 18.
unsafe extern "C-unwind" {
    fn Async_Listen(channel: *const std::ffi::c_char);
    fn Async_UnlistenAll();
    fn Async_Notify(channel: *const std::ffi::c_char, payload: *const std::ffi::c_char);
    fn ProcessNotifyInterrupt(flush: bool);
    static mut notifyInterruptPending: std::ffi::c_int;
}

/// Makes `channel` the only one this process listens on, from the commit of the current transaction on.
pub fn listen_only(channel: &CStr) {
    // SAFETY: we are in a transaction of a connected worker, on its main thread; the channel is
    // NUL-terminated and copied by the callee. Errors are turned into panics by the guard.
    unsafe {
        pg_guard_ffi_boundary(|| {
            Async_UnlistenAll();
            Async_Listen(channel.as_ptr());
        });
    }
}

/// Sends a notification without payload when the current transaction commits.
pub fn notify(channel: &CStr) {
    notify_with(channel, c"");
}

/// As above, with a payload.
pub fn notify_with(channel: &CStr, payload: &CStr) {
    // SAFETY: we are in a transaction; both strings are NUL-terminated and copied by the callee.
    unsafe { pg_guard_ffi_boundary(|| Async_Notify(channel.as_ptr(), payload.as_ptr())) };
}

/// Takes delivery of what arrived; returns whether anything did. Not within a transaction.
///
/// The payloads go nowhere: in a worker they would be logged at INFO, below any usual level.
pub fn drain() -> bool {
    // SAFETY: sig_atomic_t of this process, written by its signal handler; one volatile read.
    let pending = unsafe { (&raw const notifyInterruptPending).read_volatile() } != 0;
    if pending {
        // SAFETY: main thread, no transaction open; starts and ends one of its own.
        unsafe { pg_guard_ffi_boundary(|| ProcessNotifyInterrupt(false)) };
        // Before PostgreSQL 18 the end of a transaction leaves the memory of the whole process as the current one.
        transaction::renew_scratch();
    }
    pending
}
