//! How a commit wakes the worker: one [`Wakeup`] for each database in shared memory, written after the commit.
//!
//! The worker must act when nothing waited before, when the batch became full, or when something urgent came; all other
//! commits cost one atomic addition. There is no lock on this path, unlike with NOTIFY, which lets one such commit
//! through at a time.
//!
//! The count is what was *announced* ([`super::announce`]). Other sessions may have taken tokens meanwhile and prepared
//! transactions are never announced, so the count tells the worker when to look and never what is there.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::pg::shared_memory::{Wakeup, wakeups};
use crate::pg::{process, version};

use super::registry::SlotIndex;

/// No time at all.
pub const NEVER: i64 = i64::MAX;

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Next {
    /// Nothing waits: the poll floor.
    Poll = 0,
    /// A partial batch: its timeout.
    Timeout = 1,
    /// A failure: the next try.
    Retry = 2,
    /// mailroom_resume().
    Resume = 3,
    /// A message that becomes due, or a claim that lapses.
    Due = 4,
    /// A restore: its end.
    Restored = 5,
    /// Tokens are left to clients: a commit that they are to hear of, or the poll floor.
    Left = 6,
}

impl Next {
    /// What `mailroom_status()` says for it.
    pub fn from_number(number: u32) -> &'static str {
        match number {
            1 => "timeout of a partial batch",
            2 => "next try after a failure",
            3 => "paused, until mailroom_resume()",
            4 => "a message becomes due or a claim lapses",
            5 => "a dump is being restored",
            6 => "tokens are left to clients (mailroom.collect is off)",
            _ => "poll",
        }
    }
}

/// That of the database this process is connected to, if its worker listens.
pub fn of_this_database() -> Option<&'static Wakeup> {
    thread_local! {
        /// Where it was last time. Only a hint: slots come and go.
        static LAST: Cell<usize> = const { Cell::new(0) };
    }
    let database = process::database().to_u32();
    let all = wakeups();
    let is_ours = |wakeup: &Wakeup| wakeup.database.load(Ordering::Acquire) == database;
    if let Some(wakeup) = all.get(LAST.get()).filter(|wakeup| is_ours(wakeup)) {
        return Some(wakeup);
    }
    let index = all.iter().position(is_ours)?;
    LAST.set(index);
    all.get(index)
}

impl Wakeup {
    /// Adds to what was announced, and wakes the worker if that is a reason to act.
    pub fn announce(&self, tokens: u32, urgent: bool, requested: bool) {
        // Before the count: a worker that sees the count then sees these too.
        if urgent {
            self.urgent.store(true, Ordering::Release);
        }
        if requested {
            self.requested.store(true, Ordering::Release);
        }
        // Read first, for most commits find it set, and a write would take the line from all other writers.
        if !self.notify_owed.load(Ordering::Relaxed) {
            self.notify_owed.store(true, Ordering::Release);
        }
        let before = self.announced.fetch_add(tokens, Ordering::AcqRel);
        let limit = self.limit.load(Ordering::Relaxed);
        let filled = before < limit && before.saturating_add(tokens) >= limit;
        if before == 0 || filled || urgent || requested {
            process::set_latch_of(self.worker.load(Ordering::Acquire));
        }
    }

    /// Announces mail that is due, and wakes the worker unless it was announced before.
    pub fn set_due_now(&self, urgent: bool) {
        if urgent {
            // Before the other: a worker that sees that then sees this too.
            self.urgent_due.store(true, Ordering::Release);
        }
        if !self.due_now.load(Ordering::Relaxed) && !self.due_now.swap(true, Ordering::AcqRel) {
            process::set_latch_of(self.worker.load(Ordering::Acquire));
        }
    }

    /// Announces a time at which the outbox needs the worker, and wakes it unless an earlier one was announced before.
    pub fn set_due(&self, due: i64) {
        if due < self.due.fetch_min(due, Ordering::AcqRel) {
            process::set_latch_of(self.worker.load(Ordering::Acquire));
        }
    }

    /// Has the worker look for tokens that a rollback put back.
    pub fn give_back(&self) {
        self.given_back.store(true, Ordering::Release);
        process::set_latch_of(self.worker.load(Ordering::Acquire));
    }

    /// Has the worker check everything.
    pub fn recheck(&self) {
        self.recheck.store(true, Ordering::Release);
        process::set_latch_of(self.worker.load(Ordering::Acquire));
    }
}

/// The worker's end of its database's [`Wakeup`].
pub struct WorkerEnd {
    wakeup: &'static Wakeup,
}

/// What was announced to the worker.
#[derive(Clone, Copy, Default)]
pub struct Announced {
    /// Tokens, not accounted for yet.
    pub count: u32,
    /// Whether one was urgent.
    pub urgent: bool,
    /// Whether there were requests for links.
    pub requested: bool,
}

impl WorkerEnd {
    /// Starts to listen: from now on commits in this database write here instead of sending NOTIFY.
    ///
    /// The worker must look at the queue afterwards, for what was committed before. `None` without shared memory.
    pub fn open(index: SlotIndex, limit: u32) -> Option<Self> {
        let wakeup = wakeups().get(index.get())?;
        wakeup.announced.store(0, Ordering::Relaxed);
        wakeup.urgent.store(false, Ordering::Relaxed);
        wakeup.requested.store(false, Ordering::Relaxed);
        wakeup.notify_owed.store(false, Ordering::Relaxed);
        wakeup.limit.store(limit, Ordering::Relaxed);
        wakeup.recheck.store(false, Ordering::Relaxed);
        wakeup.given_back.store(false, Ordering::Relaxed);
        wakeup.due_now.store(false, Ordering::Relaxed);
        wakeup.urgent_due.store(false, Ordering::Relaxed);
        wakeup.due.store(NEVER, Ordering::Relaxed);
        wakeup.status.last_batch.store(0, Ordering::Relaxed);
        wakeup.status.next_wake.store(0, Ordering::Relaxed);
        wakeup.status.since.store(process::now(), Ordering::Relaxed);
        wakeup.status.pid.store(process::pid(), Ordering::Relaxed);
        wakeup
            .worker
            .store(version::own_proc_number(), Ordering::Release);
        wakeup
            .database
            .store(process::database().to_u32(), Ordering::Release);
        Some(Self { wakeup })
    }

    /// Whether everything is to be checked; resets it.
    pub fn take_recheck(&self) -> bool {
        self.wakeup.recheck.swap(false, Ordering::AcqRel)
    }

    /// Whether a rollback put tokens back; resets it.
    pub fn take_given_back(&self) -> bool {
        self.wakeup.given_back.swap(false, Ordering::AcqRel)
    }

    /// Whether mail is due that was not at the last call.
    pub fn take_due_now(&self) -> bool {
        self.wakeup.due_now.swap(false, Ordering::AcqRel)
    }

    /// Whether urgent mail is due that was not at the last call; to be called after [`Self::take_due_now`].
    pub fn take_urgent_due(&self) -> bool {
        self.wakeup.urgent_due.swap(false, Ordering::AcqRel)
    }

    /// The earliest time to come at which the outbox needs the worker, of those announced since the last call.
    pub fn take_due(&self) -> Option<i64> {
        Some(self.wakeup.due.swap(NEVER, Ordering::AcqRel)).filter(|&due| due != NEVER)
    }

    /// Publishes what the worker waits for, and until when.
    pub fn publish_wait(&self, next: Next, pause: Duration, failures: u32) {
        let status = &self.wakeup.status;
        let micros = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
        status
            .next_wake
            .store(process::now().saturating_add(micros), Ordering::Relaxed);
        status.next.store(next as u32, Ordering::Relaxed);
        status.failures.store(failures, Ordering::Relaxed);
    }

    /// Publishes that a batch was just taken.
    pub fn publish_batch(&self) {
        self.wakeup
            .status
            .last_batch
            .store(process::now(), Ordering::Relaxed);
    }

    /// Sets how many tokens fill a batch.
    pub fn set_limit(&self, limit: u32) {
        self.wakeup.limit.store(limit, Ordering::Relaxed);
    }

    /// What was announced and not accounted for.
    pub fn announced(&self) -> Announced {
        let count = self.wakeup.announced.load(Ordering::Acquire);
        Announced {
            count,
            urgent: self.wakeup.urgent.load(Ordering::Acquire),
            requested: self.wakeup.requested.load(Ordering::Acquire),
        }
    }

    /// Accounts for `count` tokens.
    ///
    /// Call this with what was read *before* the queue was looked at: what is announced in between stays.
    pub fn account_for(&self, count: u32) {
        self.replace(count, 0);
    }

    /// Accounts for `count` tokens and puts `waiting` in their place.
    pub fn replace(&self, count: u32, waiting: u32) {
        let _ =
            self.wakeup
                .announced
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |announced| {
                    Some(announced.saturating_sub(count).saturating_add(waiting))
                });
    }

    /// Whether something was announced since the last call, of which outside listeners have not heard.
    pub fn take_notify_owed(&self) -> bool {
        self.wakeup.notify_owed.swap(false, Ordering::AcqRel)
    }

    /// Whether requests were announced since the last call; to be called before they are answered.
    pub fn take_requested(&self) -> bool {
        self.wakeup.requested.swap(false, Ordering::AcqRel)
    }

    /// Resets the mark of urgent tokens, and returns whether there were any; to be called before the queue is read.
    pub fn acknowledge_urgent(&self) -> bool {
        self.wakeup.urgent.swap(false, Ordering::AcqRel)
    }
}

/// Stops listening, so that commits in this database NOTIFY again. Harmless where no worker listens.
pub fn close(index: SlotIndex) {
    if let Some(wakeup) = wakeups().get(index.get()) {
        wakeup.database.store(0, Ordering::Release);
        wakeup.worker.store(-1, Ordering::Release);
    }
}
