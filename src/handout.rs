//! Handing out without statements: rows of `pending` taken, mails put into `outbox`.
//!
//! A statement of PostgreSQL's spends most of its work on being started, and a batch is often one token: the one that
//! somebody waits for. Where the tables are as the extension made them, [`take`] and [`put`] do what the statements of
//! `sql/50_handout.sql` do; where anybody else has a say in a row (a trigger, a policy, a constraint, a missing right),
//! they leave it to those. So does [`record`], with the row that tells of the batch. What becomes of a token that is
//! not plainly good is for the statements alone to say.

mod put;
mod record;
mod take;

use pgrx::prelude::*;

/// Has this see what was committed by now and what this transaction did, as a statement of its own would.
fn with_new_snapshot<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: in a transaction. An error ends the (sub)transaction, and its snapshots with it.
    unsafe {
        pg_sys::CommandCounterIncrement();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let result = body();
        pg_sys::PopActiveSnapshot();
        result
    }
}
