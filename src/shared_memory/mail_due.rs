//! Announcements of due mail and of claims: to the worker at commit, or without one to other senders by NOTIFY.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::pg::process;
use crate::settings::{self, Notify};

use super::announce::{is_worker, queue};
use super::senders::{self, others_deliver};
use super::wakeup;

/// Announces the end of the lease of mail that this transaction claims, in microseconds since 2000-01-01.
pub fn announce_claim(until: i64) {
    announce_due(until);
    queue(|part| part.claimed = true);
}

/// Announces that a message becomes due or a claim expires at this time, in the same way as tokens: to the worker, or
/// without one by NOTIFY. `is_for_clients`: the worker does not have the transport of the message, so it must notify those
/// that deliver it. Without a worker, they are notified of all mail.
#[pg_extern(sql = false)]
fn _mail_due(due: TimestampWithTimeZone, is_urgent: bool, is_for_clients: bool) {
    let worker_tells = !is_worker() && wakeup::of_this_database().is_some();
    if is_for_clients && is_worker() {
        senders::set_others(true);
    }
    if announce_due(due.into_inner()) {
        senders::notify_due();
    }
    if worker_tells && (is_for_clients || is_urgent) {
        queue(|part| {
            part.for_clients = is_for_clients;
            part.urgent_due = is_urgent;
        });
    }
    if is_urgent && must_notify_urgent(worker_tells) {
        senders::notify_urgent();
    }
}

/// Whether this session notifies senders of urgent mail.
fn must_notify_urgent(worker_tells: bool) -> bool {
    if is_worker() {
        others_deliver()
    } else {
        !worker_tells || settings::notify() == Notify::Commit
    }
}

/// As [`_mail_due`], but announces the time only to the worker.
#[pg_extern(sql = false)]
fn _announce_due(due: TimestampWithTimeZone) {
    announce_due(due.into_inner());
}

/// Announces a time, in microseconds since 2000-01-01, to the worker. Returns whether the caller must send NOTIFY.
fn announce_due(due: i64) -> bool {
    let mode = settings::notify();
    let is_due = due <= process::now();
    if is_worker() && !senders::delivers() {
        // Without a deliverer, the worker reads later times from the outbox, and notifies senders in this transaction.
        return mode != Notify::Off && is_due;
    }
    if !is_worker() && wakeup::of_this_database().is_none() {
        return mode != Notify::Off;
    }
    queue(|part| {
        part.due_now = is_due;
        part.due = (!is_due).then_some(due);
    });
    if is_worker() {
        return mode != Notify::Off && is_due && others_deliver();
    }
    mode == Notify::Commit
}
