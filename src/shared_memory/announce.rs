//! What this session's transactions announce to the worker, and when.
//!
//! The trigger on `tokens` announces what its statement queued. The numbers are kept in this process until
//! its transaction ends: a rollback, of a savepoint too, takes them back, and only a COMMIT adds them to the
//! [`Wakeup`] of the database and, when the worker must act, sets the worker's latch. A transaction that found no worker
//! NOTIFYs at commit instead.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::time::Instant;

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::pg::shared_memory::Wakeup;
use crate::pg::transaction::{self, End, SubEnd};
use crate::pg::{notify, process};
use crate::settings::{self, Notify};

use super::registry;
use super::wakeup::{self, NEVER};

/// Has the worker look at everything now, or asks for one; returns whether there was one.
#[pg_extern(sql = false)]
fn mailroom_wake_worker() -> bool {
    let there = wakeup::of_this_database().map(Wakeup::recheck).is_some();
    if !there {
        registry::request(process::database());
        registry::wake_worker();
        notify_recheck();
    }
    there
}

/// Has the worker look at everything once this transaction commits, and senders, who hear of it from the worker or, where
/// there is none, from here.
#[pg_extern(sql = false)]
fn _recheck_at_commit() {
    recheck_at_commit();
    if !has_worker() {
        notify_recheck();
    }
}

/// Tells senders, when this transaction commits, that everything is to be looked at and tried.
pub fn notify_recheck() {
    // A standby cannot notify.
    if settings::notify() != Notify::Off && !process::is_in_recovery() {
        notify::notify_with(OUTBOX_CHANNEL, RECHECK_PAYLOAD);
    }
}

/// Tells senders, when this transaction commits, that urgent mail is due.
pub fn notify_urgent() {
    if settings::notify() != Notify::Off {
        notify::notify_with(OUTBOX_CHANNEL, URGENT_PAYLOAD);
    }
}

/// The channel on which senders hear that mail is due.
const OUTBOX_CHANNEL: &CStr = c"outbox_due";
/// What a notification on the channel of the outbox says when everything is to be tried at once, a paused transport, too.
const RECHECK_PAYLOAD: &CStr = c"recheck";
/// What it says when some of the mail is urgent: a paused transport is probed with it.
const URGENT_PAYLOAD: &CStr = c"urgent";

/// Whether the worker of this database listens.
pub fn has_worker() -> bool {
    wakeup::of_this_database().is_some()
}

/// As above, for the library itself.
pub fn recheck_at_commit() {
    transaction::at_end(at_end, at_sub_end);
    RECHECK.set(true);
}

/// Has the worker look at everything now, from a process that is about to end.
pub fn recheck_now() {
    if let Some(wakeup) = wakeup::of_this_database() {
        wakeup.recheck();
    }
}

/// This transaction took rows of pending: if it is rolled back, the worker is to look for them.
#[pg_extern(sql = false)]
fn _took() {
    took();
}

/// As above, for the library itself.
pub fn took() {
    // The worker itself knows when it failed, and waits then.
    if !is_worker() {
        queue(|part| part.took = true);
    }
}

/// This transaction begins to change rows of the outbox that may refuse it.
pub fn begin_changes() {
    queue(|part| part.changing = true);
}

/// They were changed.
pub fn end_changes() {
    QUEUED.with_borrow_mut(|queued| {
        if let Some(last) = queued.last_mut() {
            last.changing = false;
        }
    });
}

/// When this process last failed to change such rows.
pub fn change_failed_at() -> Option<Instant> {
    CHANGE_FAILED_AT.get()
}

/// Announces the end of a lease that this transaction claims for.
pub fn announce_claim(until: i64) {
    announce_due(until);
    queue(|part| part.claimed = true);
}

/// These (sub)transactions are rolled back.
fn give_back(parts: impl Iterator<Item = Queued>) {
    let mut all = Queued::at(1);
    parts.for_each(|part| all.add(&part));
    if all.changing {
        CHANGE_FAILED_AT.set(Some(Instant::now()));
    }
    if !(all.took || all.claimed) {
        return;
    }
    if let Some(wakeup) = wakeup::of_this_database() {
        if all.took {
            wakeup.give_back();
        }
        if all.claimed {
            // Due it was, and senders who looked meanwhile found it taken.
            wakeup.set_due_now(false);
        }
    }
}

/// What one (sub)transaction of this process queued and took.
#[derive(Clone, Copy)]
struct Queued {
    /// Nesting level of the (sub)transaction, 1 for the transaction itself.
    level: i32,
    tokens: u32,
    urgent: bool,
    requested: bool,
    /// As in [`Wakeup`].
    due_now: bool,
    urgent_due: bool,
    due: i64,
    /// It took rows of pending, which an abort gives back.
    took: bool,
    /// It claimed mail, which an abort puts back.
    claimed: bool,
    /// It is changing rows of the outbox that may refuse it.
    changing: bool,
}

impl Queued {
    /// Nothing, so far.
    fn at(level: i32) -> Self {
        Self {
            level,
            tokens: 0,
            urgent: false,
            requested: false,
            due_now: false,
            urgent_due: false,
            due: NEVER,
            took: false,
            claimed: false,
            changing: false,
        }
    }

    fn add(&mut self, other: &Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.urgent |= other.urgent;
        self.requested |= other.requested;
        self.due_now |= other.due_now;
        self.urgent_due |= other.urgent_due;
        self.due = self.due.min(other.due);
        self.took |= other.took;
        self.claimed |= other.claimed;
        self.changing |= other.changing;
    }
}

/// Adds to what the current (sub)transaction queued.
fn queue(change: impl FnOnce(&mut Queued)) {
    transaction::at_end(at_end, at_sub_end);
    let level = transaction::level();
    let mut part = Queued::at(level);
    change(&mut part);
    QUEUED.with_borrow_mut(
        |queued| match queued.last_mut().filter(|last| last.level == level) {
            Some(last) => last.add(&part),
            None => queued.push(part),
        },
    );
}

/// This process is the worker of its database, from now on. Others that run in the background, apply workers and those
/// of other extensions, are sessions like any other.
pub fn become_worker() {
    IS_WORKER.set(true);
}

/// Whether this process is the worker of its database.
pub fn is_worker() -> bool {
    IS_WORKER.get()
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    static QUEUED: RefCell<Vec<Queued>> = const { RefCell::new(Vec::new()) };
    static RECHECK: Cell<bool> = const { Cell::new(false) };
    static CHANGE_FAILED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Announces a row of pending. Returns the lane as it is, so that the statement that queues rows need not read them again.
#[pg_extern(sql = false)]
fn _announce(lane: i16) -> i16 {
    announce(lane, false);
    lane
}

/// Announces a request, which the worker answers before it takes what becomes of it.
#[pg_extern(sql = false)]
fn _announce_request(lane: i16) {
    announce(lane, true);
}

/// To be told to the worker at commit, or by NOTIFY where the worker does not tell on the writers' behalf.
fn announce(lane: i16, requested: bool) {
    let mode = settings::notify();
    let notifies = if wakeup::of_this_database().is_some() {
        queue(|part| {
            part.tokens = 1;
            part.urgent = lane == 0;
            part.requested = requested;
        });
        mode == Notify::Commit
    } else {
        mode != Notify::Off
    };
    if notifies {
        notify::notify(&settings::channel());
    }
}

/// Announces that a message becomes due at this time, or a claim lapses, as [`_announce`] does.
#[pg_extern(sql = false)]
fn _mail_due(due: TimestampWithTimeZone) {
    if announce_due(due.into_inner()) {
        notify::notify(OUTBOX_CHANNEL);
    }
}

/// Announces, as [`_mail_due`] does, that the message it announced is urgent.
#[pg_extern(sql = false)]
fn _urgent_mail_due() {
    if is_worker() {
        if others_deliver() {
            notify_urgent();
        }
        return;
    }
    let worker_tells = wakeup::of_this_database().is_some();
    if worker_tells {
        queue(|part| part.urgent_due = true);
    }
    if !worker_tells || settings::notify() == Notify::Commit {
        notify_urgent();
    }
}

/// As [`_mail_due`], but tells the worker alone.
#[pg_extern(sql = false)]
fn _announce_due(due: TimestampWithTimeZone) {
    announce_due(due.into_inner());
}

/// Has the worker told of a time, in microseconds since 2000-01-01. Returns whether the caller must NOTIFY.
fn announce_due(due: i64) -> bool {
    let mode = settings::notify();
    let is_due = due <= process::now();
    if is_worker() && !DELIVERS.get() {
        // It learns of later times when it looks, and tells of mail in its transaction.
        return mode != Notify::Off && is_due;
    }
    if !is_worker() && wakeup::of_this_database().is_none() {
        return mode != Notify::Off;
    }
    queue(|part| {
        part.due_now = is_due;
        part.due = if is_due { NEVER } else { due };
    });
    if is_worker() {
        return mode != Notify::Off && is_due && others_deliver();
    }
    mode == Notify::Commit
}

thread_local! {
    /// Whether this process is a worker that delivers.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
    /// Whether others were found that do, beside this worker.
    static OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Whether there is mail that this worker leaves to others, which have to hear of it: it does not deliver itself, others
/// have published transports of theirs, or clients deliver what has no transport named.
pub fn others_deliver() -> bool {
    !DELIVERS.get() || OTHERS.get() || settings::transport().is_empty()
}

/// Says whether others deliver beside this worker.
pub fn set_others(others: bool) {
    OTHERS.set(others);
}

/// Says whether this worker delivers, and so wants to hear of what its own statements make due.
pub fn set_delivers(delivers: bool) {
    DELIVERS.set(delivers);
}

/// After a commit nothing may fail any more: no allocation and no error in here, and no lock except for a recheck.
fn at_end(end: End) {
    match end {
        End::Commit => QUEUED.with_borrow_mut(|queued| {
            let mut all = Queued::at(1);
            queued.drain(..).for_each(|part| all.add(&part));
            let recheck = RECHECK.replace(false);
            match wakeup::of_this_database() {
                Some(wakeup) => {
                    if all.tokens > 0 {
                        wakeup.announce(all.tokens, all.urgent, all.requested);
                    }
                    if all.due_now {
                        wakeup.set_due_now(all.urgent_due);
                    }
                    if all.due != NEVER {
                        wakeup.set_due(all.due);
                    }
                    if recheck {
                        wakeup.recheck();
                    }
                }
                // A worker that could not start its work tries again.
                None if recheck => registry::wake_worker(),
                None => {}
            }
        }),
        // When a prepared transaction is committed is not known here; `worker/utility.rs` has the worker look then.
        End::Abort | End::Prepare => {
            RECHECK.set(false);
            QUEUED.with_borrow_mut(|queued| {
                let parts = queued.drain(..);
                if end == End::Abort {
                    give_back(parts);
                }
            });
        }
    }
}

/// `level` is that of the subtransaction that ends.
fn at_sub_end(end: SubEnd, level: i32) {
    QUEUED.with_borrow_mut(|queued| match end {
        SubEnd::Abort => {
            // What was taken around it stays taken. The parts are in the order of their levels.
            let kept = queued.partition_point(|part| part.level < level);
            give_back(queued.drain(kept..));
        }
        SubEnd::Commit => {
            let outer = queued.partition_point(|part| part.level < level);
            let sum = queued.drain(outer..).reduce(|mut sum, part| {
                sum.add(&part);
                sum
            });
            match (sum, queued.last_mut()) {
                (Some(sum), Some(last)) if last.level == level - 1 => last.add(&sum),
                (Some(sum), _) => queued.push(Queued {
                    level: level - 1,
                    ..sum
                }),
                (None, _) => {}
            }
        }
    });
}
