//! Locks that SQL cannot request: advisory locks with an `objsubid` that PostgreSQL's own functions do not use.
//!
//! Every role may call those functions with any key, so any role could hold such a lock and block this extension.

use pgrx::prelude::*;

use super::process;

/// The kind of a lock, which is its `objsubid` in `pg_locks`.
#[derive(Clone, Copy)]
enum Kind {
    Restore = 3,
    Group = 4,
    Budgets = 5,
}

/// A lock in this database.
#[derive(Clone, Copy)]
pub struct Lock {
    kind: Kind,
    key: u64,
}

impl Lock {
    /// Held by sessions that restore a dump; transactions that hand out take it in a conflicting mode.
    pub const RESTORE: Self = Self {
        kind: Kind::Restore,
        key: u64::from_be_bytes(*b"mailroom"),
    };
    /// The lock on the counters of the budgets.
    pub const BUDGETS: Self = Self {
        kind: Kind::Budgets,
        key: 0,
    };

    /// The lock on a group of messages, by the hash of its key.
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
            // A session-level lock of this method outlasts a ROLLBACK; one of the method of table locks does not.
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}

/// How a lock is held.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Mode {
    /// Shared with holders of this mode only: the mode of sessions that restore.
    Share = pg_sys::ShareLock as i32,
    /// Shared with holders of this mode only: the mode of transactions that hand out.
    RowExclusive = pg_sys::RowExclusiveLock as i32,
    /// Held by one session alone.
    Exclusive = pg_sys::ExclusiveLock as i32,
}

/// Acquires a lock until this transaction ends, without waiting. Returns false if the lock is not available.
pub fn try_lock(lock: Lock, mode: Mode) -> bool {
    // SAFETY: in a transaction; an error of the server is passed on.
    let held = unsafe { pg_sys::LockAcquire(&lock.tag(), mode as i32, false, true) };
    held != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Releases a lock of this transaction before its end. An error also releases it.
pub fn unlock(lock: Lock, mode: Mode) {
    // SAFETY: in a transaction. The server writes a WARNING if the lock is not held.
    unsafe { pg_sys::LockRelease(&lock.tag(), mode as i32, false) };
}

/// Acquires a lock until this session ends; waits for it. Repeated calls count once.
pub fn lock_for_session(lock: Lock, mode: Mode) {
    let tag = lock.tag();
    // SAFETY: in a transaction; an error of the server is passed on.
    unsafe {
        let held = pg_sys::LockAcquire(&tag, mode as i32, true, false);
        if held != pg_sys::LockAcquireResult::LOCKACQUIRE_OK {
            pg_sys::LockRelease(&tag, mode as i32, true);
        }
    }
}
