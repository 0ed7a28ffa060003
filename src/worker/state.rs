//! The state of a worker between two steps, and what it waits for.

use std::time::{Duration, Instant};

use super::deliverer::Deliverer;
use super::session::Session;
use crate::shared_memory::registry::SlotIndex;
use crate::shared_memory::wakeup::{Next, WorkerEnd};
use mailroom_core::backoff::Failures;
use mailroom_core::batching::{Batcher, Time, Trigger};
use mailroom_core::purge::Purges;

/// How often the worker checks whether a restore has ended, in case the restoring session did not wake it.
pub const RESTORE_CHECK: Duration = Duration::from_secs(1);
/// Pause between two polls while there are more expired claims than one poll takes back.
pub const POLL_DELAY: Duration = Duration::from_millis(100);

/// What to wait for.
pub struct Wait {
    pub until: Time,
    /// The cause to act on at that time.
    pub then: Cause,
    /// Whether no partial batch waits, so that any announced token is a reason to act.
    pub idle: bool,
    /// What `mailroom_status()` shows.
    pub next: Next,
}

/// Why the worker acts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Commits announced tokens; their number is known without a query.
    Announced,
    /// The oldest token of a partial batch has waited long enough.
    Deadline,
    /// A notification, a rollback or a reload: there may be tokens that no commit announced.
    Notified,
    /// A session asked the worker to check everything.
    Rechecked,
    /// Due mail was announced.
    DueNow,
    /// A message that was scheduled for later has become due, or a claim has expired.
    Due,
    /// The poll floor, a search, or the next attempt after a failure.
    Polled,
}

/// The result of running the deliverer's jobs.
pub enum Delivered {
    /// Call it again at this time, or when the deliverer has jobs.
    Next(Option<Time>),
    /// The extension no longer exists.
    Gone,
}

/// The deliverer, and its restart.
#[derive(Default)]
pub struct Delivery {
    /// Delivers the outbox; `None` if this database has no transports, or the system refused a thread.
    pub(super) deliverer: Option<Deliverer>,
    /// Failures to start it because the system refused a thread.
    pub(super) failures: Failures,
    /// When the next attempt to start it is due.
    pub(super) restart_at: Option<Time>,
}

/// The tokens of `pending`, and the requests for links that become tokens.
pub struct Tokens {
    pub(super) batcher: Batcher,
    /// Why the current or the latest batch was taken.
    pub(super) trigger: Trigger,
    /// Whether the latest check did not reach the end of the queue: more tokens may wait than were announced.
    pub(super) beyond: bool,
    /// Whether there may be requests for links.
    pub(super) requested: bool,
    /// The earliest time to answer requests again after a failure.
    pub(super) answer_at: Time,
}

/// When the mail of the outbox is due.
#[derive(Default)]
pub struct Mail {
    /// When the outbox next needs the worker, in microseconds since 2000-01-01.
    pub(super) next_due: Option<i64>,
    /// Whether there is due mail of which senders have not been notified.
    pub(super) due_now: bool,
    /// Whether some of that mail is urgent.
    pub(super) urgent_due: bool,
    /// When the outbox was last maintained, or senders were last notified.
    pub(super) maintained_at: Time,
}

/// Polls, and what the next one searches for.
pub struct Polls {
    /// When the worker last polled.
    pub(super) at: Time,
    /// Pause between that poll and the next one.
    pub(super) delay: Duration,
    /// Whether there may be tokens and mail that were not announced: of commits without a worker, of a restore, of
    /// prepared transactions, or from before a pause. The next poll notifies senders and listeners.
    pub(super) search: bool,
    /// Whether mail of transports that the worker does not deliver through must be searched for. Once that was done, commits
    /// announce such mail.
    pub(super) search_others: bool,
}

/// Notifications that the worker sends to clients, and those that it receives.
#[derive(Default)]
pub struct Notices {
    /// Whether tokens were announced of which outside listeners have not been notified.
    pub(super) owed: bool,
    /// When clients were last notified of tokens that are left to them.
    pub(super) sent_at: Time,
    /// Whether the worker has sent a notification that it will receive itself.
    pub(super) echo: bool,
    /// When a notification was last a reason to check the queue.
    pub(super) heard_at: Option<Time>,
    /// When to check the queue because of notifications that may not be the worker's own.
    pub(super) check_by: Option<Time>,
}

/// When to purge.
#[derive(Default)]
pub struct Purging {
    pub(super) schedule: Purges,
    /// When a failed purge was last logged.
    pub(super) failed_at: Option<Time>,
}

/// The worker of a database.
pub struct Worker {
    pub(super) session: Session,
    pub(super) index: SlotIndex,
    pub(super) wakeup: WorkerEnd,
    /// Whether the worker is paused, or suspended by a restore.
    pub(super) paused: bool,
    /// Whether a session restores a dump.
    pub(super) is_restoring: bool,
    pub(super) delivery: Delivery,
    pub(super) tokens: Tokens,
    pub(super) mail: Mail,
    pub(super) polls: Polls,
    pub(super) notices: Notices,
    pub(super) purging: Purging,
    pub(super) origin: Instant,
    pub(super) failures: Failures,
}
