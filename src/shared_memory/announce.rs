//! Announcements of this session's transactions to the worker.
//!
//! The trigger on `tokens` announces the tokens that its statement enqueued. The counts stay in this process until the
//! transaction ends: a rollback, also to a savepoint, discards them. A COMMIT adds them to the [`Wakeup`] of the
//! database and sets the worker's latch if the worker must act. A transaction that finds no worker sends NOTIFY at
//! commit instead.

use std::cell::{Cell, RefCell};

use pgrx::prelude::*;

use crate::pg::shared_memory::Wakeup;
use crate::pg::transaction::{self, End, SubEnd};
use crate::pg::{notify, process};
use crate::settings::{self, Notify};

use super::registry;
use super::senders::notify_recheck;
use super::wakeup;

/// Makes the worker check everything now; without one, requests one and notifies senders. Returns whether there was
/// one.
#[pg_extern(sql = false)]
fn _wake_worker() -> bool {
    let there = wakeup::of_this_database().map(Wakeup::recheck).is_some();
    if !there {
        registry::request(process::database());
        registry::wake_worker();
        notify_recheck();
    }
    there
}

/// When this transaction commits, makes the worker check everything, and notifies senders. The worker notifies them; if
/// there is none, this session does.
#[pg_extern(sql = false)]
fn _recheck_at_commit() {
    recheck_at_commit();
    if !has_worker() {
        notify_recheck();
    }
}

/// Whether this database has a worker that accepts announcements.
pub fn has_worker() -> bool {
    wakeup::of_this_database().is_some()
}

/// When this transaction commits, makes the worker check everything. Does not notify senders.
pub fn recheck_at_commit() {
    queue(|part| part.recheck = true);
}

/// When this transaction commits, makes the worker search for tokens and mail that were not announced.
#[pg_extern(sql = false)]
fn _search_at_commit() {
    search_at_commit();
}

/// As [`_search_at_commit`], for callers in this library.
pub fn search_at_commit() {
    queue(|part| part.search = true);
}

/// Makes the worker check everything now. For a process that is about to end.
pub fn recheck_now() {
    if let Some(wakeup) = wakeup::of_this_database() {
        wakeup.recheck();
    }
}

/// Notes that this transaction took rows of pending. If it is rolled back, the worker searches for them.
#[pg_extern(sql = false)]
fn _took() {
    // The worker notices its own failures, and backs off.
    if !is_worker() {
        queue(|part| part.took = true);
    }
}

/// Handles the rollback of these (sub)transactions.
fn give_back(parts: impl Iterator<Item = Queued>) {
    let mut all = Queued::at(1);
    parts.for_each(|part| all.add(&part));
    if !(all.took || all.claimed) {
        return;
    }
    if let Some(wakeup) = wakeup::of_this_database() {
        if all.took {
            wakeup.give_back();
        }
        if all.claimed {
            // The mail was due, but senders that searched before the rollback found it claimed.
            wakeup.set_due_now(false);
        }
    }
}

/// The announcements of one (sub)transaction of this process.
#[derive(Clone, Copy, Default)]
pub(super) struct Queued {
    /// Nesting level of the (sub)transaction, 1 for the transaction itself.
    level: i32,
    tokens: u32,
    urgent: bool,
    requested: bool,
    /// As in [`Wakeup`].
    pub(super) due_now: bool,
    pub(super) urgent_due: bool,
    pub(super) for_clients: bool,
    pub(super) due: Option<i64>,
    search: bool,
    recheck: bool,
    /// Whether it took rows of pending, which a rollback puts back.
    took: bool,
    /// Whether it claimed mail, which a rollback puts back.
    pub(super) claimed: bool,
}

impl Queued {
    /// No announcement yet.
    fn at(level: i32) -> Self {
        Self {
            level,
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.urgent |= other.urgent;
        self.requested |= other.requested;
        self.due_now |= other.due_now;
        self.urgent_due |= other.urgent_due;
        self.for_clients |= other.for_clients;
        self.due = self.due.into_iter().chain(other.due).min();
        self.search |= other.search;
        self.recheck |= other.recheck;
        self.took |= other.took;
        self.claimed |= other.claimed;
    }
}

/// Adds to the announcements of the current (sub)transaction.
pub(super) fn queue(change: impl FnOnce(&mut Queued)) {
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

/// Marks this process as the worker of its database. Other background workers, such as apply workers and those of other
/// extensions, count as sessions.
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
}

/// Announces a row of pending, or a request for a link, which the worker answers before it collects the resulting token:
/// to the worker at commit, and by NOTIFY with `mailroom.notify = commit`, or with `auto` and no worker. Returns the lane, so
/// that the INSERT that enqueues the rows need not read them again.
#[pg_extern(sql = false)]
fn _announce(lane: i16, is_request: bool) -> i16 {
    let mode = settings::notify();
    let notifies = if wakeup::of_this_database().is_some() {
        queue(|part| {
            part.tokens = 1;
            part.urgent = lane == 0;
            part.requested = is_request;
        });
        mode == Notify::Commit
    } else {
        mode != Notify::Off
    };
    if notifies {
        notify::notify(&settings::channel());
    }
    lane
}

/// Publishes or discards the announcements when a transaction ends. After a commit nothing may fail: this function
/// allocates nothing, raises no error, and takes no lock unless there is no worker.
fn at_end(end: End) {
    match end {
        End::Commit => QUEUED.with_borrow_mut(|queued| {
            let mut all = Queued::at(1);
            queued.drain(..).for_each(|part| all.add(&part));
            match wakeup::of_this_database() {
                Some(wakeup) => {
                    if all.tokens > 0 {
                        wakeup.announce(all.tokens, all.urgent, all.requested);
                    }
                    if all.for_clients {
                        wakeup.set_for_clients();
                    }
                    if all.due_now {
                        wakeup.set_due_now(all.urgent_due);
                    }
                    if let Some(due) = all.due {
                        wakeup.set_due(due);
                    }
                    if all.search {
                        wakeup.search();
                    }
                    if all.recheck {
                        wakeup.recheck();
                    }
                }
                // Wakes a worker that waits to retry its start.
                None if all.recheck || all.search => registry::wake_worker(),
                None => {}
            }
        }),
        // Another session ends a prepared transaction; `worker/utility.rs` makes the worker search then.
        End::Abort | End::Prepare => {
            QUEUED.with_borrow_mut(|queued| {
                let parts = queued.drain(..);
                if end == End::Abort {
                    give_back(parts);
                }
            });
        }
    }
}

/// Merges or discards the announcements of the subtransaction that ends; `level` is its nesting level.
fn at_sub_end(end: SubEnd, level: i32) {
    QUEUED.with_borrow_mut(|queued| match end {
        SubEnd::Abort => {
            // Outer levels keep their announcements. The parts are in the order of their levels.
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
