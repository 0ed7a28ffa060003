//! Results of the worker's statements, and which listeners to notify.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::spi::SpiTupleTable;

use super::Failure;
use super::statement::{count, required};
use crate::pg::notify;
use crate::settings;

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
    /// Whether there are other deliverers than workers.
    pub others: bool,
}

impl OutboxState {
    /// Reads three columns, starting with column `first`.
    pub fn read(row: &SpiTupleTable<'_>, first: usize) -> Result<Self, Failure> {
        let next_due: Option<TimestampWithTimeZone> = row.get(first)?;
        Ok(Self {
            next_due: next_due.map(TimestampWithTimeZone::into_inner),
            more: required(row, first + 1)?,
            others: required(row, first + 2)?,
        })
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
    Told,
}

impl Listeners {
    pub fn tell(self) {
        if self == Self::Owed {
            notify::notify(&settings::channel());
        }
    }
}

/// Whether to notify senders that LISTEN on the channel of the outbox that mail is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// They may not know yet.
    Senders,
    /// No notification: there are no other senders, or they were notified when the mail became due.
    None,
}
