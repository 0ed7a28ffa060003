//! Results of the worker's statements, and which listeners to notify.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::spi::SpiTupleTable;

use super::Failure;
use super::statement::{count, required};
use crate::pg::notify;
use crate::settings::{self, Notify};
use crate::shared_memory::senders;

/// The waiting tokens, see `_pending_summary`.
pub struct Waiting {
    /// Number of tokens, counted up to the limit in each lane; plus 1 if there are requests.
    pub count: u32,
    /// Whether one of them is urgent, or there are requests.
    pub urgent: bool,
    /// Whether the worker is paused.
    pub paused: bool,
}

impl Waiting {
    /// Reads the first three columns.
    pub fn read(row: &SpiTupleTable<'_>) -> Result<Self, Failure> {
        Ok(Self {
            count: count(required(row, 1)?),
            urgent: required(row, 2)?,
            paused: required(row, 3)?,
        })
    }
}

/// What maintaining the outbox left to do, see `_maintain_outbox`.
pub struct OutboxState {
    /// When the next message becomes due or the next claim expires, in microseconds since 2000-01-01.
    pub next_due: Option<i64>,
    /// Whether there is more to do at once.
    pub more: bool,
    /// Whether there are other senders than the worker; `None` if that was not searched for.
    pub others: Option<bool>,
    /// Whether they were notified.
    pub notified: bool,
}

impl OutboxState {
    /// Reads three columns, starting with column `first`.
    pub fn read(row: &SpiTupleTable<'_>, first: usize) -> Result<Self, Failure> {
        let next_due: Option<TimestampWithTimeZone> = row.get(first)?;
        Ok(Self {
            next_due: next_due.map(TimestampWithTimeZone::into_inner),
            more: required(row, first + 1)?,
            others: row.get(first + 2)?,
            notified: false,
        })
    }

    /// Notifies other senders of due mail after this transaction commits, if there are any: if `tell` says so, or if the
    /// worker knew of none, and so has not notified them before.
    pub fn tell(mut self, tell: Tell) -> Self {
        let knew = senders::others_deliver();
        if let Some(others) = self.others {
            senders::set_others(others);
        }
        if senders::others_deliver() && (tell == Tell::Senders || !knew) {
            senders::notify_due();
            self.notified = settings::notify() != Notify::Off;
        }
        self
    }
}

/// The result of one batch, see `_run_batch`.
pub struct Batch {
    /// Tokens that became scheduled rows.
    pub collected: u32,
    /// Tokens that were no longer eligible or could not be signed.
    pub skipped: u32,
}

impl Batch {
    /// Tokens that left the queue.
    pub fn moved(&self) -> u32 {
        self.collected.saturating_add(self.skipped)
    }
}

/// Whether the worker must notify clients that LISTEN on `mailroom.channel` of new tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Listeners {
    /// Writers announced tokens in shared memory and left the NOTIFY to the worker.
    Owed,
    /// No notification is owed.
    Notified,
}

impl Listeners {
    pub fn tell(self) {
        if self == Self::Owed {
            notify::notify(&settings::channel());
        }
    }
}

/// Whether to notify other senders that mail is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// They may not know yet.
    Senders,
    /// They were notified when the mail became due.
    None,
}
