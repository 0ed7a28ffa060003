//! The transaction in which a deliverer settles and claims mail: what it asks for, and what comes back.

use std::time::Duration;

use super::mail::Mail;
use super::settlements::Settlements;

/// The most that one exchange may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLimit {
    /// Number of mails.
    pub mails: u32,
    /// Total size of their contents in bytes. One mail is claimed even if it is larger.
    pub bytes: usize,
    /// Whether to read the budgets if fewer mails than `mails` are claimed.
    pub check_budgets: bool,
}

/// The state of the budgets after a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetState {
    /// No budget applies.
    Unlimited,
    /// Every budget has room.
    Available,
    /// A budget is spent; it has room again after this time.
    SpentFor(Duration),
}

/// The mails that one exchange claimed.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// In the order of their queue positions.
    pub mails: Vec<Mail>,
    /// Number of further mails that were claimed and released for lack of room, or failed because they cannot be read.
    pub surplus: usize,
    /// The budgets, if [`ClaimLimit::check_budgets`] asked for them.
    pub budget: Option<BudgetState>,
}

/// The result of an exchange.
#[derive(Clone, Default)]
pub struct ExchangeResult {
    /// The settlements of the transaction.
    pub settled: Settlements,
    /// `outbox.id` of the mails in `settled` whose claims had been lost.
    pub lost: Vec<i64>,
    /// Settlements that the database refused for the sake of these rows, and that were given up. Their claims will expire.
    pub unsettled: Settlements,
    /// Settlements that it refused, and that are to be repeated.
    pub repeated: Settlements,
    /// The wait before they are repeated. Other mail may be settled and claimed meanwhile.
    pub repeat_after: Duration,
    /// The wait before the next exchange, if this one failed and changed nothing. It then repeats `repeated` at once.
    pub retry_after: Duration,
    /// The limit and the claimed mails; `None` if the exchange claimed nothing.
    pub claimed: Option<(ClaimLimit, Claimed)>,
}
