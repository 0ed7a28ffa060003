//! NOTIFY to senders that LISTEN on `outbox_due`: other deliverers than the worker, and clients.
//!
//! With a worker, only the worker notifies them, on the writers' behalf, and only if it does not deliver all mail
//! itself.

use std::cell::Cell;
use std::ffi::CStr;

use crate::pg::{notify, process};
use crate::settings::{self, Notify};

/// The channel on which senders are notified that mail is due.
const OUTBOX_CHANNEL: &CStr = c"outbox_due";
/// The payload on [`OUTBOX_CHANNEL`] that asks senders to retry everything at once, including paused transports.
const RECHECK_PAYLOAD: &CStr = c"recheck";
/// The payload that announces urgent mail, with which a paused transport is probed.
const URGENT_PAYLOAD: &CStr = c"urgent";

/// Notifies senders, when this transaction commits, that mail is due.
pub fn notify_due() {
    if settings::notify() != Notify::Off {
        notify::notify(OUTBOX_CHANNEL);
    }
}

/// Notifies senders, when this transaction commits, that they must check and retry everything.
pub fn notify_recheck() {
    // A standby cannot notify.
    if settings::notify() != Notify::Off && !process::is_in_recovery() {
        notify::notify_with(OUTBOX_CHANNEL, RECHECK_PAYLOAD);
    }
}

/// Notifies senders, when this transaction commits, that urgent mail is due.
pub fn notify_urgent() {
    if settings::notify() != Notify::Off {
        notify::notify_with(OUTBOX_CHANNEL, URGENT_PAYLOAD);
    }
}

thread_local! {
    /// Whether this process is a worker with a deliverer.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
    /// Whether there are other senders besides this worker.
    static OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Whether other senders must be notified of due mail: this worker has no deliverer, other deliverers have published
/// transports, or there is mail whose transport none has published, which is left to clients. Once that is so, it stays so
/// until a reload.
pub fn others_deliver() -> bool {
    !DELIVERS.get() || OTHERS.get()
}

/// Whether this process is a worker with a deliverer.
pub fn delivers() -> bool {
    DELIVERS.get()
}

/// Sets whether there are other senders besides this worker.
pub fn set_others(others: bool) {
    OTHERS.set(others);
}

/// Sets whether this worker has a deliverer, and so needs the announcements of its own statements.
pub fn set_delivers(delivers: bool) {
    DELIVERS.set(delivers);
}
