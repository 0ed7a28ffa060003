//! A claimed mail.

use std::time::SystemTime;

use crate::message::Message;

/// A mail between its claim and its settle, with what a deliverer has to know besides what it says.
#[derive(Clone, Debug)]
pub struct Mail {
    /// What it says.
    pub message: Message,
    /// Of no use from then on.
    pub expires_at: Option<SystemTime>,
    /// Bytes of its contents, about.
    pub size: usize,
    /// Smaller is more urgent.
    pub priority: i16,
    /// `outbox.send_at`, in microseconds.
    pub send_at: i64,
    /// Mails of one group are sent one after the other.
    pub group_key: Option<String>,
    /// How often it may have been sent before.
    pub ambiguous_attempts: i32,
    /// Each of those times by a request of its own, which a provider that knows requests again knows by the mail.
    pub ambiguous_alone: bool,
    /// The request it was in with others when its outcome remained open, see [`super::batch`].
    pub batch: Option<String>,
    /// It is to have a request of its own: one with others was refused.
    pub alone: bool,
}

impl Mail {
    /// What its claim is known by.
    pub fn claim(&self) -> Claim {
        Claim {
            id: self.message.id,
            attempts: self.message.attempts,
        }
    }

    /// Its place in the order of claims.
    pub fn place(&self) -> Place {
        (self.priority, self.send_at, self.message.id)
    }

    /// Whether it is of no use any more.
    pub fn is_late(&self, wall: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= wall)
    }
}

/// Priority, `send_at`, `id`.
pub type Place = (i16, i64, i64);

/// A claimed mail, by what its claim is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `outbox.id`.
    pub id: i64,
    /// `outbox.failed_attempts` as the claim returned it.
    pub attempts: i32,
}
