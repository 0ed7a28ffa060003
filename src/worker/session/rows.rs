//! What the worker's statements return, and what it tells listeners.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::spi::SpiTupleTable;

use super::Failure;
use super::statement::{count, required};
use crate::pg::notify;
use crate::settings;

/// What waits, see `_pending_summary`.
pub struct Waiting {
    /// Tokens, counted no further than the limit in each lane.
    pub count: u32,
    /// Whether one of them is urgent.
    pub urgent: bool,
    /// Whether the worker is to leave them alone.
    pub paused: bool,
}

impl Waiting {
    /// From the first three columns.
    pub fn read(row: &SpiTupleTable<'_>) -> Result<Self, Failure> {
        Ok(Self {
            count: count(required(row, 1)?),
            urgent: required(row, 2)?,
            paused: required(row, 3)?,
        })
    }
}

/// What looking after the outbox left to do, see `_maintain_outbox`.
pub struct OutboxState {
    /// When a message becomes due or a claim lapses next, in microseconds since 2000-01-01.
    pub next_due: Option<i64>,
    /// Whether there is more to do at once.
    pub more: bool,
    /// Whether others than workers deliver, too.
    pub others: bool,
}

impl OutboxState {
    /// From three columns, the first of which has this number.
    pub fn read(row: &SpiTupleTable<'_>, first: usize) -> Result<Self, Failure> {
        let next_due: Option<TimestampWithTimeZone> = row.get(first)?;
        Ok(Self {
            next_due: next_due.map(TimestampWithTimeZone::into_inner),
            more: required(row, first + 1)?,
            others: required(row, first + 2)?,
        })
    }
}

/// What one batch did, see `_run_batch`.
pub struct Batch {
    /// Tokens that became scheduled rows.
    pub collected: u32,
    /// Tokens that were no longer eligible.
    pub skipped: u32,
}

impl Batch {
    /// Tokens that left the queue.
    pub fn moved(&self) -> u32 {
        self.collected.saturating_add(self.skipped)
    }
}

/// Whether those who LISTEN on the channel are to hear of new tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Listeners {
    /// Writers announced tokens in shared memory and left the NOTIFY to the worker.
    Owed,
    /// Everybody was told.
    Told,
}

impl Listeners {
    pub fn tell(self) {
        if self == Self::Owed {
            notify::notify(&settings::channel());
        }
    }
}

/// Whether senders who LISTEN on the channel of the outbox are to hear that mail is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// It may be news to them.
    Senders,
    /// No sender: they were told when it became due.
    None,
}
