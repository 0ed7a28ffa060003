//! Locks that SQL cannot ask for: advisory locks with an `objsubid` that PostgreSQL's own functions do not use.
//!
//! Everybody may call those functions with any key, so a lock of theirs is one that any role can hold against us.

use std::time::Duration;

use pgrx::prelude::*;

use crate::server;

/// What is locked, by `objsubid` in `pg_locks`.
#[derive(Clone, Copy)]
pub enum Kind {
    /// The gate of a restore.
    Gate = 3,
    /// A group of mails, by the hash of its key.
    Group = 4,
    /// The counters of the budgets.
    Budgets = 5,
}

/// A lock of this database.
pub fn tag(kind: Kind, key: u64) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: a plain variable of this process.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: (key >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: kind as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        // Unlike the locks of tables, those of users outlast the ROLLBACK of a transaction.
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

const ALONE: pg_sys::LOCKMODE = pg_sys::ExclusiveLock as pg_sys::LOCKMODE;

/// Takes a lock for this transaction alone, if it is to be had now.
fn try_lock(tag: &pg_sys::LOCKTAG) -> bool {
    // SAFETY: in a transaction, as every SQL function is; an error of the server's is passed on.
    let held = unsafe { pg_sys::LockAcquire(tag, ALONE, false, true) };
    held != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Locks a group, by the hash of its key, until this transaction ends; false when somebody else holds it.
#[pg_extern(sql = false)]
fn _try_lock_group(hash: i64) -> bool {
    try_lock(&tag(Kind::Group, hash.cast_unsigned()))
}

/// How long to wait for somebody who counts: that takes less than a millisecond.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Lets this session alone count, until `_unlock_budgets()`; false when another one does not come to an end.
#[pg_extern(sql = false)]
fn _lock_budgets() -> bool {
    let tag = tag(Kind::Budgets, 0);
    (0..TRIES).any(|_| {
        let locked = try_lock(&tag);
        if !locked {
            server::wait(PAUSE);
        }
        locked
    })
}

/// Ends it. An error ends it as well.
#[pg_extern(sql = false)]
fn _unlock_budgets() {
    // SAFETY: in a transaction. It says so in the log if the lock is not held.
    unsafe { pg_sys::LockRelease(&tag(Kind::Budgets, 0), ALONE, false) };
}
