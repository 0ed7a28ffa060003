//! What people are told of delivery, in shared memory: one entry for each worker.
//!
//! Written by the worker when something changes, read by `mailroom_status()`. A lock guards it, which nobody
//! holds for longer than a copy takes.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, pg_shmem_init};

use crate::registry::{SLOTS, SlotIndex};

/// Bytes of a reason that are kept.
const REASON: usize = 240;

/// A short text in shared memory.
#[derive(Clone, Copy)]
struct Text<const N: usize> {
    length: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    const EMPTY: Self = Self {
        length: 0,
        bytes: [0; N],
    };

    /// As much of it as there is room for.
    fn new(text: &str) -> Self {
        let mut kept = Self::EMPTY;
        kept.length = (0..=N.min(text.len()))
            .rfind(|&end| text.is_char_boundary(end))
            .unwrap_or(0);
        kept.bytes[..kept.length].copy_from_slice(&text.as_bytes()[..kept.length]);
        kept
    }

    fn get(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes[..self.length]);
        (!text.is_empty()).then(|| text.into_owned())
    }
}

#[derive(Clone, Copy)]
struct Entry {
    /// `pg_database.oid`; 0 for nobody.
    database: u32,
    sender: Text<16>,
    channel: Text<16>,
    reason: Text<REASON>,
    /// Microseconds since 2000-01-01; 0 for never.
    next_try: i64,
    in_flight: u32,
    unknown: u64,
}

const NOBODY: Entry = Entry {
    database: 0,
    sender: Text::EMPTY,
    channel: Text::EMPTY,
    reason: Text::EMPTY,
    next_try: 0,
    in_flight: 0,
    unknown: 0,
};

#[derive(Clone, Copy)]
struct Reports([Entry; SLOTS]);

impl Default for Reports {
    fn default() -> Self {
        Self([NOBODY; SLOTS])
    }
}

// SAFETY: plain numbers and bytes, no addresses; all access is under the lock.
unsafe impl PGRXSharedMemory for Reports {}

// SAFETY: the name is this extension's own.
static REPORTS: PgLwLock<Reports> = unsafe { PgLwLock::new(c"mailroom delivery") };

/// Reserves the shared memory. Called from `_PG_init` while libraries are being preloaded.
pub fn reserve() {
    pg_shmem_init!(REPORTS);
}

/// How delivery is.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    /// `mailroom.sender`.
    pub sender: &'static str,
    /// `healthy`, `slowed`, `throttled` or `paused`; empty when clients send.
    pub channel: &'static str,
    /// Why it is not open.
    pub reason: String,
    /// When something is tried next, in microseconds since 2000-01-01.
    pub next_try: Option<i64>,
    /// Mails that were handed over and not answered yet.
    pub in_flight: usize,
    /// Mails that may have been sent, since the worker started.
    pub unknown: u64,
}

/// Tells of the worker of this process, which has this slot.
pub fn write(index: SlotIndex, report: &Report) {
    REPORTS.exclusive().0[index.get()] = Entry {
        // SAFETY: a plain variable of this process.
        database: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        sender: Text::new(report.sender),
        channel: Text::new(report.channel),
        reason: Text::new(&report.reason),
        next_try: report.next_try.unwrap_or(0),
        in_flight: u32::try_from(report.in_flight).unwrap_or(u32::MAX),
        unknown: report.unknown,
    };
}

/// The worker with this slot is gone.
pub fn clear(index: SlotIndex) {
    REPORTS.exclusive().0[index.get()] = NOBODY;
}

/// What the worker of this database tells of delivery; no row when there is none.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the shape of a SQL row")]
fn _delivery_report() -> TableIterator<
    'static,
    (
        name!(sender, Option<String>),
        name!(channel, Option<String>),
        name!(reason, Option<String>),
        name!(next_try_at, Option<TimestampWithTimeZone>),
        name!(in_flight, i32),
        name!(unknown, i64),
    ),
> {
    // SAFETY: a plain variable of this process, set since it connected.
    let own = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let entry = crate::is_preloaded()
        .then(|| REPORTS.share().0)
        .and_then(|entries| entries.into_iter().find(|entry| entry.database == own));
    TableIterator::new(entry.map(|entry| {
        let next_try = Some(entry.next_try).filter(|&micros| micros != 0);
        (
            entry.sender.get(),
            entry.channel.get(),
            entry.reason.get(),
            next_try.and_then(|micros| TimestampWithTimeZone::try_from(micros).ok()),
            i32::try_from(entry.in_flight).unwrap_or(i32::MAX),
            i64::try_from(entry.unknown).unwrap_or(i64::MAX),
        )
    }))
}
