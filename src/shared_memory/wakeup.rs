//! How a commit wakes the worker: each database has one [`Wakeup`] in shared memory, which a session writes after its
//! commit.
//!
//! A commit wakes the worker if no tokens were announced before, if the batch became full, if a token is urgent, or if
//! a link was requested; any other commit costs one atomic addition. This path takes no lock, whereas NOTIFY serializes
//! such commits.
//!
//! The count is that of *announced* tokens ([`super::announce`]). Other sessions may have taken tokens since, and
//! prepared transactions are never announced. So the count tells the worker when to read the queue, but not what is in
//! it.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::pg::shared_memory::{Wakeup, wakeups};
use crate::pg::{process, version};

use super::registry::SlotIndex;

/// A due time that stands for no time.
const NEVER: i64 = i64::MAX;

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Next {
    /// The poll floor: nothing waits.
    Poll = 0,
    /// The timeout of a partial batch.
    Timeout = 1,
    /// The next attempt after a failure.
    Retry = 2,
    /// mailroom_resume().
    Resume = 3,
    /// A message becomes due, or a claim expires.
    Due = 4,
    /// The end of a restore.
    Restored = 5,
    /// Tokens are left to clients: a commit of which to notify them, or the poll floor.
    Left = 6,
}

impl Next {
    /// The text that `mailroom_status()` shows for a number of this enum.
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

/// Returns the [`Wakeup`] of the database that this process is connected to, if its worker accepts announcements.
pub fn of_this_database() -> Option<&'static Wakeup> {
    thread_local! {
        /// The index found by the last call. Only a hint, because slots are freed and reused.
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
    fn wake(&self) {
        process::set_latch_of(self.worker.load(Ordering::Acquire));
    }

    /// Announces tokens, and wakes the worker if it must act.
    pub fn announce(&self, tokens: u32, urgent: bool, requested: bool) {
        // Stored before the count, so that a worker that sees the count also sees these flags.
        if urgent {
            self.urgent.store(true, Ordering::Release);
        }
        if requested {
            self.requested.store(true, Ordering::Release);
        }
        // Read first: most commits find it set, and a write would invalidate the cache line of all other writers.
        if !self.notify_owed.load(Ordering::Relaxed) {
            self.notify_owed.store(true, Ordering::Release);
        }
        let before = self.announced.fetch_add(tokens, Ordering::AcqRel);
        let limit = self.limit.load(Ordering::Relaxed);
        let filled = before < limit && before.saturating_add(tokens) >= limit;
        if before == 0 || filled || urgent || requested {
            self.wake();
        }
    }

    /// Announces that clients deliver mail that is announced next.
    pub fn set_for_clients(&self) {
        if !self.for_clients.load(Ordering::Relaxed) {
            self.for_clients.store(true, Ordering::Release);
        }
    }

    /// Announces that mail is due, and wakes the worker unless that was announced before.
    pub fn set_due_now(&self, urgent: bool) {
        if urgent {
            // Stored before `due_now`, so that a worker that sees `due_now` also sees this flag.
            self.urgent_due.store(true, Ordering::Release);
        }
        if !self.due_now.load(Ordering::Relaxed) && !self.due_now.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Announces a time, in microseconds since 2000-01-01, at which the outbox needs the worker. Wakes the worker
    /// unless this or an earlier time was announced before.
    pub fn set_due(&self, due: i64) {
        if due < self.due.fetch_min(due, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Makes the worker search for tokens that a rollback put back.
    pub fn give_back(&self) {
        self.given_back.store(true, Ordering::Release);
        self.wake();
    }

    /// Makes the worker search for tokens and mail that were not announced.
    pub fn search(&self) {
        self.search.store(true, Ordering::Release);
        self.wake();
    }

    /// Makes the worker check everything.
    pub fn recheck(&self) {
        self.recheck.store(true, Ordering::Release);
        self.wake();
    }
}

/// The worker's side of the [`Wakeup`] of its database.
pub struct WorkerEnd {
    wakeup: &'static Wakeup,
}

/// Announcements to the worker.
#[derive(Clone, Copy, Default)]
pub struct Announced {
    /// Number of tokens that are not accounted for yet.
    pub count: u32,
    /// Whether one of them is urgent.
    pub urgent: bool,
    /// Whether requests for links were announced.
    pub requested: bool,
}

impl WorkerEnd {
    /// Opens the [`Wakeup`] of a slot: from now on, commits in this database announce here instead of sending NOTIFY.
    ///
    /// The worker must read the queue afterwards, for earlier commits. Returns `None` without shared memory.
    pub fn open(index: SlotIndex, limit: u32) -> Option<Self> {
        let wakeup = wakeups().get(index.get())?;
        wakeup.announced.store(0, Ordering::Relaxed);
        wakeup.urgent.store(false, Ordering::Relaxed);
        wakeup.requested.store(false, Ordering::Relaxed);
        wakeup.notify_owed.store(false, Ordering::Relaxed);
        wakeup.limit.store(limit, Ordering::Relaxed);
        wakeup.recheck.store(false, Ordering::Relaxed);
        wakeup.search.store(false, Ordering::Relaxed);
        wakeup.given_back.store(false, Ordering::Relaxed);
        wakeup.due_now.store(false, Ordering::Relaxed);
        wakeup.urgent_due.store(false, Ordering::Relaxed);
        wakeup.for_clients.store(false, Ordering::Relaxed);
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

    /// Whether the worker must check everything; resets the flag.
    pub fn take_recheck(&self) -> bool {
        self.wakeup.recheck.swap(false, Ordering::AcqRel)
    }

    /// Whether the worker must search for tokens and mail that were not announced.
    pub fn must_search(&self) -> bool {
        self.wakeup.search.load(Ordering::Acquire)
    }

    /// As [`Self::must_search`]; resets the flag. Must be called before the search.
    pub fn take_search(&self) -> bool {
        self.wakeup.search.swap(false, Ordering::AcqRel)
    }

    /// Whether a rollback put tokens back; resets the flag.
    pub fn take_given_back(&self) -> bool {
        self.wakeup.given_back.swap(false, Ordering::AcqRel)
    }

    /// Whether due mail was announced since the last call.
    pub fn take_due_now(&self) -> bool {
        self.wakeup.due_now.swap(false, Ordering::AcqRel)
    }

    /// Whether urgent due mail was announced since the last call. Must be called after [`Self::take_due_now`].
    pub fn take_urgent_due(&self) -> bool {
        self.wakeup.urgent_due.swap(false, Ordering::AcqRel)
    }

    /// Whether mail for clients was announced since the last call. Must be called after [`Self::take_due_now`] and
    /// [`Self::take_due`], and before the outbox is searched for such mail.
    pub fn take_for_clients(&self) -> bool {
        self.wakeup.for_clients.swap(false, Ordering::AcqRel)
    }

    /// The earliest of the times announced since the last call at which the outbox needs the worker, in microseconds
    /// since 2000-01-01.
    pub fn take_due(&self) -> Option<i64> {
        Some(self.wakeup.due.swap(NEVER, Ordering::AcqRel)).filter(|&due| due != NEVER)
    }

    /// Publishes what the worker waits for and how long, and the number of consecutive failures.
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

    /// Returns the announcements that are not accounted for yet.
    pub fn announced(&self) -> Announced {
        let count = self.wakeup.announced.load(Ordering::Acquire);
        Announced {
            count,
            urgent: self.wakeup.urgent.load(Ordering::Acquire),
            requested: self.wakeup.requested.load(Ordering::Acquire),
        }
    }

    /// Subtracts `count` from the announced tokens.
    ///
    /// The count must be the number of tokens that were taken, or be read *before* the queue is read: tokens announced
    /// in between stay announced.
    pub fn account_for(&self, count: u32) {
        self.replace(count, 0);
    }

    /// Replaces `count` of the announced tokens by `waiting`.
    pub fn replace(&self, count: u32, waiting: u32) {
        let _ =
            self.wakeup
                .announced
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |announced| {
                    Some(announced.saturating_sub(count).saturating_add(waiting))
                });
    }

    /// Whether tokens were announced since the last call, of which outside listeners were not notified.
    pub fn take_notify_owed(&self) -> bool {
        self.wakeup.notify_owed.swap(false, Ordering::AcqRel)
    }

    /// Whether requests were announced since the last call. Must be called before they are answered.
    pub fn take_requested(&self) -> bool {
        self.wakeup.requested.swap(false, Ordering::AcqRel)
    }

    /// Whether urgent tokens were announced since the last call. Must be called before the queue is read.
    pub fn acknowledge_urgent(&self) -> bool {
        self.wakeup.urgent.swap(false, Ordering::AcqRel)
    }
}

/// Closes the [`Wakeup`] of a slot, so that commits in its database send NOTIFY again. Has no effect if it is not open.
pub fn close(index: SlotIndex) {
    if let Some(wakeup) = wakeups().get(index.get()) {
        wakeup.database.store(0, Ordering::Release);
        wakeup.worker.store(-1, Ordering::Release);
    }
}
