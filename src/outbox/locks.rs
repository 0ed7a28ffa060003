//! The locks of a claim.

use std::time::Duration;

use pgrx::prelude::*;

use crate::pg::locks::{Lock, Mode, try_lock, unlock};
use crate::pg::process;

/// Locks a group, by the hash of its key, until this transaction ends. Returns false if another transaction holds it.
#[pg_extern(sql = false)]
fn _try_lock_group(hash: i64) -> bool {
    try_lock(Lock::of_group(hash), Mode::Exclusive)
}

/// Attempts to lock the budgets, and the pause between two. A session that counts takes less than a millisecond.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Locks the counters of the budgets until `_unlock_budgets()`. Returns false if another session keeps the lock.
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

/// Releases the lock of `_lock_budgets()`. An error releases it as well.
#[pg_extern(sql = false)]
fn _unlock_budgets() {
    unlock(Lock::BUDGETS, Mode::Exclusive);
}
