//! The locks of a claim.

use std::time::Duration;

use pgrx::prelude::*;

use crate::pg::locks::{Lock, Mode, try_lock, unlock};
use crate::pg::process;

/// Locks a group, by the hash of its key, until this transaction ends; false when another one holds it.
#[pg_extern(sql = false)]
fn _try_lock_group(hash: i64) -> bool {
    try_lock(Lock::of_group(hash), Mode::Exclusive)
}

/// How long to wait for a session that counts: that takes less than a millisecond.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Lets this session alone count budgets, until `_unlock_budgets()`; false when another one does not finish.
#[pg_extern(sql = false)]
fn _lock_budgets() -> bool {
    (0..TRIES).any(|_| {
        let locked = try_lock(Lock::BUDGETS, Mode::Exclusive);
        if !locked {
            process::wait(PAUSE);
        }
        locked
    })
}

/// Ends it. An error ends it as well.
#[pg_extern(sql = false)]
fn _unlock_budgets() {
    unlock(Lock::BUDGETS, Mode::Exclusive);
}
