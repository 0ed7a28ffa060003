//! What a worker knows between two steps, and what it waits for.

use std::time::{Duration, Instant};

use super::deliverer::Deliverer;
use super::session::Session;
use crate::shared_memory::registry::SlotIndex;
use crate::shared_memory::wakeup::{Next, WorkerEnd};
use mailroom_core::backoff::Failures;
use mailroom_core::batching::{Batcher, Time, Trigger};

/// How often to check whether a restore has ended, in case its session did not say so.
pub const RESTORE_CHECK: Duration = Duration::from_secs(1);
/// The pause between two polls while there are more lapsed claims than one takes back.
pub const POLL_PAUSE: Duration = Duration::from_millis(100);

/// What to wait for.
pub struct Wait {
    pub until: Time,
    /// How to look when the time has come.
    pub then: Cause,
    /// Nothing waits, so that any announcement is a reason to look.
    pub idle: bool,
    /// For people.
    pub next: Next,
}

/// Why the worker looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Commits announced tokens: how many is known without a query.
    Announced,
    /// The oldest of a partial batch has waited long enough.
    Deadline,
    /// A notification or a reload: rows may be there that no commit announced.
    Notified,
    /// A session said that something besides the queue changed.
    Rechecked,
    /// Mail was announced that is due.
    DueNow,
    /// A message that was scheduled for later has become due, or a claim has lapsed.
    Due,
    /// The poll floor, or the next try after a failure.
    Polled,
    /// The first look: senders are told of mail that became due while no worker was running.
    Started,
}

/// What a round of delivery came to.
pub enum Delivery {
    /// The next one is due then, or when the deliverer has something to settle.
    Next(Option<Time>),
    /// The extension is not there any more.
    Gone,
}

/// The worker of a database.
pub struct Worker {
    pub(super) session: Session,
    pub(super) index: SlotIndex,
    pub(super) wakeup: WorkerEnd,
    /// Delivers the outbox, unless clients do.
    pub(super) deliverer: Option<Deliverer>,
    /// Attempts to start the deliverer for which the system had no thread.
    pub(super) deliverer_failures: Failures,
    /// When the next attempt is due.
    pub(super) restart_deliverer_at: Option<Time>,
    /// Told by mailroom_pause() to leave the queue alone, or standing by.
    pub(super) paused: bool,
    /// A session restores a dump.
    pub(super) is_restoring: bool,
    /// There may be requests, which become tokens when they are answered.
    pub(super) asked: bool,
    /// The latest look did not see the end of the queue: more may wait than was announced.
    pub(super) beyond: bool,
    /// When everything was last looked at.
    pub(super) polled_at: Time,
    /// How long after that everything is to be looked at again.
    pub(super) poll_pause: Duration,
    /// When the outbox wants attention, in microseconds since 2000-01-01.
    pub(super) next_due: Option<i64>,
    /// Mail is due of which senders have not been told.
    pub(super) due_now: bool,
    /// Whether some of it is urgent.
    pub(super) urgent_due: bool,
    /// When it last got some, or they were told.
    pub(super) maintained_at: Time,
    /// When to purge next, and when the log was last told that it failed.
    pub(super) purge_at: Time,
    pub(super) purge_failed_at: Option<Time>,
    /// When to answer requests next, after that has failed.
    pub(super) answer_at: Time,
    /// Something was announced of which outside listeners have not heard yet.
    pub(super) notify_owed: bool,
    /// When they were last told of tokens that are left to them.
    pub(super) notified_listeners_at: Time,
    /// The worker told outside listeners, and will hear that itself.
    pub(super) echo: bool,
    /// When a notification was last a reason to look.
    pub(super) notified_at: Option<Time>,
    /// When to look because of a notification that may have been more than that echo.
    pub(super) check_by: Option<Time>,
    pub(super) batcher: Batcher,
    /// Why the batch in hand, or the latest one, went.
    pub(super) trigger: Trigger,
    pub(super) origin: Instant,
    pub(super) failures: Failures,
}
