//! A claimed mail.

use std::time::Duration;

use super::Time;
use crate::message::Message;
use crate::row::{Column, ReadError, Row};

/// A message that was claimed from the outbox, and the columns that the deliverer decides by.
#[derive(Clone, Debug)]
pub struct Mail {
    /// The message to send.
    pub message: Message,
    /// When it was claimed, or a little earlier, by the clock of the deliverer, which sets it.
    pub claimed_at: Time,
    /// `outbox.expires_at`, as the time after the claim: from then on the mail is not sent. By the clock of the database:
    /// that of this machine may be another one.
    pub expires_in: Option<Duration>,
    /// The time from the claim for its first attempt to this claim, by the clock of the database; zero if this is the first,
    /// and the time from `outbox.created_at` if the first one was purged.
    pub age: Duration,
    /// Approximate size of its contents in bytes, with its files.
    pub size: usize,
    /// What its files have together, in bytes; they are read after it. `None` without files.
    pub attachment_bytes: Option<i64>,
    /// `outbox.priority`; smaller is more urgent.
    pub priority: i16,
    /// `outbox.send_at`, in microseconds since 1970-01-01.
    pub send_at: i64,
    /// `outbox.group_key`: mails of one group are sent one after the other.
    pub group_key: Option<String>,
    /// Number of earlier attempts that may have sent it.
    pub ambiguous_attempts: i32,
    /// Whether it was alone in the request in at least one of these attempts. An idempotent provider recognizes it then.
    pub ambiguous_alone: bool,
    /// Whether an earlier attempt of it may have arrived: it was ambiguous, its lease expired, or its result came too late.
    pub may_have_arrived: bool,
    /// The key of the batch whose outcome is unknown; see [`super::retry_batches`]. `None` in the queue.
    pub batch: Option<String>,
    /// Whether it ends as an error if the next attempt fails: the last of `outbox.max_attempts`. After an attempt that is the
    /// last because the mail expires, it ends as expired.
    pub ends_as_error: bool,
    /// Whether this transport has it as a fallback: if it cannot carry it, the mail goes back and does not end.
    pub fell_back: bool,
    /// Whether it needs a request of its own, because a batch with it was refused.
    pub alone: bool,
}

impl Mail {
    /// Reads a mail whose contents have this size; redirects it if `mailroom.redirect_to` is set.
    ///
    /// # Errors
    /// As [`ReadError`].
    pub fn read<R: Row>(row: &R, size: usize) -> Result<Self, ReadError<R::Error>> {
        let mut message = Message::read(row)?;
        if let Some(address) = Column::read(row, "mailroom.redirect_to")? {
            message.redirect(address);
        }
        let expires_in: Option<f64> = Column::read(row, "expires_in")?;
        let age: Option<f64> = Column::read(row, "age")?;
        let priority = i32::read(row, "priority")?;
        Ok(Self {
            message,
            claimed_at: Time::ZERO,
            expires_in: expires_in.map(seconds),
            age: age.map(seconds).unwrap_or_default(),
            size,
            attachment_bytes: Column::read(row, "attachment_bytes")?,
            priority: i16::try_from(priority).unwrap_or(i16::MAX),
            send_at: Column::read(row, "send_at")?,
            group_key: Column::read(row, "group_key")?,
            ambiguous_attempts: Column::read(row, "ambiguous_attempts")?,
            ambiguous_alone: Column::read(row, "ambiguous_alone")?,
            may_have_arrived: Column::read(row, "may_have_arrived")?,
            batch: Column::read(row, "batch")?,
            ends_as_error: Column::read(row, "ends_as_error")?,
            fell_back: Column::read(row, "fell_back")?,
            alone: false,
        })
    }

    /// The size of the contents, which tells whether there is room for them before they are read.
    ///
    /// # Errors
    /// As [`Row::Error`].
    pub fn size<R: Row>(row: &R) -> Result<usize, R::Error> {
        let size = row.bigint("size")?;
        let size = size.ok_or_else(|| R::unexpected_null("size"))?;
        Ok(usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// Whether it is sent alone, and only if there is room for it beside the other large mails in flight.
    pub fn is_large(&self) -> bool {
        self.size > LARGE
    }

    /// Identifies its claim.
    pub fn claim(&self) -> Claim {
        Claim {
            id: self.message.id,
            attempts: self.message.attempts,
        }
    }

    /// Its position in the queue.
    pub fn position(&self) -> Position {
        (self.priority, self.send_at, self.message.id)
    }

    /// Whether it has expired.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires_in
            .is_some_and(|left| now >= self.claimed_at.saturating_add(left))
    }

    /// Whether it was first claimed at least this long ago.
    pub fn is_older(&self, age: Duration, now: Time) -> bool {
        let since_claim = now.saturating_sub(self.claimed_at);
        self.age.saturating_add(since_claim) >= age
    }
}

/// A number of seconds: zero if it is negative, and the longest duration if it is infinite.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX)
}

/// The size in bytes above which a mail is large: smaller ones need no limit of their own in flight.
const LARGE: usize = 256 << 10;

/// Mail with this priority or a smaller one is urgent: password recoveries have it, and budgets may reserve a share for it.
pub const URGENT_PRIORITY: i16 = -10;

/// Position in the queue, the order of claims: priority, `send_at`, `id`.
pub type Position = (i16, i64, i64);

/// Identifies a claim: every claim of a mail has another number of failed attempts, so a settle of an earlier claim has
/// no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `outbox.id`.
    pub id: i64,
    /// `outbox.failed_attempts` as the claim returned it.
    pub attempts: i32,
}

impl Claim {
    /// Reads it from a row, whose contents may be no text.
    ///
    /// # Errors
    /// As [`Row::Error`].
    pub fn read<R: Row>(row: &R) -> Result<Self, R::Error> {
        let id = row.bigint("id")?;
        let attempts = row.integer("attempts")?;
        Ok(Self {
            id: id.ok_or_else(|| R::unexpected_null("id"))?,
            attempts: attempts.ok_or_else(|| R::unexpected_null("attempts"))?,
        })
    }
}
