//! Locks that SQL cannot ask for: advisory locks with an `objsubid` that PostgreSQL's own functions do not use.
//!
//! Every role may call those functions with any key, so a lock of theirs is one that any role can hold against us.

use pgrx::prelude::*;

use super::process;

/// What is locked, by `objsubid` in `pg_locks`.
#[derive(Clone, Copy)]
enum Kind {
    Restore = 3,
    Group = 4,
    Budgets = 5,
}

/// A lock of this database.
#[derive(Clone, Copy)]
pub struct Lock {
    kind: Kind,
    key: u64,
}

impl Lock {
    /// Held by a session that restores a dump.
    pub const RESTORE: Self = Self {
        kind: Kind::Restore,
        key: u64::from_be_bytes(*b"mailroom"),
    };
    /// The counters of the budgets.
    pub const BUDGETS: Self = Self {
        kind: Kind::Budgets,
        key: 0,
    };

    /// A group of messages, by the hash of its key.
    pub fn of_group(hash: i64) -> Self {
        Self {
            kind: Kind::Group,
            key: hash.cast_unsigned(),
        }
    }

    fn tag(self) -> pg_sys::LOCKTAG {
        pg_sys::LOCKTAG {
            locktag_field1: process::database().to_u32(),
            locktag_field2: (self.key >> 32) as u32,
            locktag_field3: self.key as u32,
            locktag_field4: self.kind as u16,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            // Unlike the locks of tables, those of users outlast the ROLLBACK of a transaction.
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}

/// How a lock is held.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Mode {
    /// Together with others of this mode, and no other: of sessions that restore.
    Share = pg_sys::ShareLock as i32,
    /// Together with others of this mode, and no other: of transactions that hand out.
    RowExclusive = pg_sys::RowExclusiveLock as i32,
    /// By one alone.
    Exclusive = pg_sys::ExclusiveLock as i32,
}

/// Takes a lock until this transaction ends, if it is free now.
pub fn try_lock(lock: Lock, mode: Mode) -> bool {
    // SAFETY: in a transaction; an error of the server's is passed on.
    let held = unsafe { pg_sys::LockAcquire(&lock.tag(), mode as i32, false, true) };
    held != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Releases a lock of this transaction before its end. An error releases it as well.
pub fn unlock(lock: Lock, mode: Mode) {
    // SAFETY: in a transaction. The server writes a WARNING if the lock is not held.
    unsafe { pg_sys::LockRelease(&lock.tag(), mode as i32, false) };
}

/// Takes a lock until this session ends; waits for it. However often it is taken, it is counted once.
pub fn lock_for_session(lock: Lock, mode: Mode) {
    let tag = lock.tag();
    // SAFETY: in a transaction; an error of the server's is passed on.
    unsafe {
        let held = pg_sys::LockAcquire(&tag, mode as i32, true, false);
        if held != pg_sys::LockAcquireResult::LOCKACQUIRE_OK {
            pg_sys::LockRelease(&tag, mode as i32, true);
        }
    }
}
