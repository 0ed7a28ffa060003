//! LISTEN and NOTIFY through the functions that the SQL commands call.
//!
//! The command LISTEN is refused in a background worker, but the functions work there: `Async_Listen`, inside a
//! transaction, registers the listener, and `ProcessNotifyInterrupt`, outside one, reads the notifications. A listener
//! must always read them: one that does not holds up the notification queue of the whole cluster.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

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

/// Makes `channel` the only channel that this process listens on once the current transaction commits.
pub fn listen_only(channel: &CStr) {
    // SAFETY: in a transaction of a connected worker, on its main thread; the channel is NUL-terminated and copied by
    // the callee. The guard turns errors into panics.
    unsafe {
        pg_guard_ffi_boundary(|| {
            Async_UnlistenAll();
            Async_Listen(channel.as_ptr());
        });
    }
}

/// A channel and a payload.
type Notification = (CString, CString);

thread_local! {
    /// What this process has not sent yet; `None` if it sends when its transactions commit.
    static KEPT: RefCell<Option<Vec<Notification>>> = const { RefCell::new(None) };
}

/// From now on, [`notify`] and [`notify_with`] keep the notifications of this process for [`send`].
///
/// A transaction with a NOTIFY fails while the server's queue is full, because a session of any database listens and
/// does not end its transaction. That must not undo what else the transaction did.
pub fn keep() {
    KEPT.with_borrow_mut(|kept| {
        kept.get_or_insert_default();
    });
}

/// The kept notifications, each once; none is kept then.
pub fn take_kept() -> Vec<Notification> {
    KEPT.with_borrow_mut(|kept| kept.as_mut().map(std::mem::take).unwrap_or_default())
}

/// Sends these notifications when the current transaction commits.
pub fn send(notifications: &[Notification]) {
    for (channel, payload) in notifications {
        send_one(channel, payload);
    }
}

fn send_one(channel: &CStr, payload: &CStr) {
    // SAFETY: in a transaction; both strings are NUL-terminated and copied by the callee.
    unsafe { pg_guard_ffi_boundary(|| Async_Notify(channel.as_ptr(), payload.as_ptr())) };
}

/// Sends a notification without payload when the current transaction commits, or keeps it.
pub fn notify(channel: &CStr) {
    notify_with(channel, c"");
}

/// As [`notify`], with a payload.
pub fn notify_with(channel: &CStr, payload: &CStr) {
    let is_kept = KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept else { return false };
        let new = (channel.to_owned(), payload.to_owned());
        if !kept.contains(&new) {
            kept.push(new);
        }
        true
    });
    if !is_kept {
        send_one(channel, payload);
    }
}

/// Reads the notifications that have arrived; returns whether there were any. Not within a transaction.
///
/// The payloads are lost: in a worker, the server would log them at INFO, below the usual log levels.
pub fn drain() -> bool {
    // SAFETY: sig_atomic_t of this process, written by its signal handler; one volatile read.
    let pending = unsafe { (&raw const notifyInterruptPending).read_volatile() } != 0;
    if pending {
        // SAFETY: main thread, no transaction open; the call starts and ends one of its own.
        unsafe { pg_guard_ffi_boundary(|| ProcessNotifyInterrupt(false)) };
        // Before PostgreSQL 18, the end of a transaction leaves TopMemoryContext as the current context.
        transaction::renew_scratch();
    }
    pending
}
