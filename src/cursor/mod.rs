//! Where this session's scans start: of `pending`, of due mail, expired leases, requests for links, rows to purge.
//!
//! A row that was taken stays in its index until vacuum may remove it, which it may not while any session holds an older
//! snapshot. A scan that always started at the beginning would step over all of them, and each batch would cost more
//! than the one before (I4). So a session remembers, for each [`scan::Scan`], how far it got; [`scan`] has the rules.
//!
//! The state is local to this process; losing it costs one scan from the beginning. A `timestamptz` is passed as an
//! `i64` of microseconds, as it is stored.

#![forbid(unsafe_code)]

mod scan;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use crate::pg::catalog;
use crate::pg::process::{self, processor_clock};
use scan::{Position, Scan};

/// Maximum number of scans that are remembered: some for each transport, and one for each table.
const SCANS: usize = 256;

#[derive(Default)]
struct Memory {
    /// By name, in the encoding of the database, with the number of the latest use.
    scans: BTreeMap<Box<[u8]>, (u64, Scan)>,
    uses: u64,
    /// The extension that they belong to: after DROP and CREATE EXTENSION all rows are new.
    extension: Option<pg_sys::Oid>,
}

impl Memory {
    /// Returns what is remembered of a scan. A new one takes the place of the least recently used if there are too many.
    fn of(&mut self, name: &[u8]) -> &mut Scan {
        self.uses += 1;
        if self.scans.len() >= SCANS && !self.scans.contains_key(name) {
            let oldest = self.scans.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.scans.remove(&oldest);
            }
        }
        let (used, scan) = self
            .scans
            .entry(name.into())
            .or_insert_with(|| (0, Scan::new(Instant::now())));
        *used = self.uses;
        scan
    }
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::default());
}

fn with<T>(name: &[u8], work: impl FnOnce(&mut Scan) -> T) -> T {
    MEMORY.with_borrow_mut(|memory| work(memory.of(name)))
}

/// Forgets the scans of an extension that was dropped.
fn forget_others() {
    let extension = catalog::extension();
    MEMORY.with_borrow_mut(|memory| {
        if memory.extension != extension {
            memory.extension = extension;
            memory.scans.clear();
        }
    });
}

/// Begins a scan. Returns whether it is a sweep.
#[pg_extern(sql = false)]
fn _scan_begin(scan: &[u8]) -> bool {
    forget_others();
    with(scan, |scan| scan.begin(Instant::now(), processor_clock()))
}

/// Begins a scan that is a sweep.
#[pg_extern(sql = false)]
fn _scan_sweep(scan: &[u8]) {
    with(scan, |scan| scan.sweep(Instant::now(), processor_clock()));
}

/// Begins the scan's next look, if it is not the first. Returns the parts that it knows, and where it starts in each:
/// all parts, or in a sweep those that it came to.
#[pg_extern(sql = false)]
fn _scan_parts(
    scan: &[u8],
) -> TableIterator<'static, (name!(part, i16), name!(at, i64), name!(id, i64))> {
    let parts: Vec<_> = with(scan, |scan| scan.parts(processor_clock()));
    TableIterator::new(parts.into_iter().map(|(part, at)| (part, at.at, at.id)))
}

/// Returns where the scan starts in one part.
#[pg_extern(sql = false)]
fn _scan_start(scan: &[u8], part: i16) -> TableIterator<'static, (name!(at, i64), name!(id, i64))> {
    let start = with(scan, |scan| scan.start(part));
    TableIterator::once((start.at, start.id))
}

/// Returns the id after which the next scan will start in part 0.
#[pg_extern(sql = false)]
fn _scan_next_id(scan: &[u8]) -> i64 {
    forget_others();
    with(scan, |scan| scan.next_start(Instant::now()).id)
}

/// Records how far the scan got in one part, and whether it stopped there because of a limit of its own.
#[pg_extern(sql = false)]
fn _scan_note(scan: &[u8], part: i16, at: i64, id: i64, cut_off: bool) {
    let at = Position { at, id };
    with(scan, |scan| scan.note(part, at, cut_off, process::now()));
}

/// Ends a look. Returns the seconds until a scan may sweep; 0 if this one did.
#[pg_extern(sql = false)]
fn _scan_end(scan: &[u8]) -> f64 {
    with(scan, |scan| scan.end(Instant::now(), processor_clock())).as_secs_f64()
}

/// Counts time that a sweep took after its last look.
#[pg_extern(sql = false)]
fn _scan_spend(scan: &[u8], seconds: f64) {
    let spent = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    with(scan, |scan| scan.spend(spent));
}

/// Makes the next scan of a part start here at the latest.
#[pg_extern(sql = false)]
fn _scan_back(scan: &[u8], part: i16, at: i64, id: i64) {
    with(scan, |scan| scan.back(part, Position { at, id }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_scans_are_remembered_as_are_used() {
        let mut memory = Memory::default();
        memory
            .of(b"pending")
            .note(0, Position { at: 0, id: 7 }, false, i64::MAX);
        for number in 0..10 * SCANS {
            memory.of(number.to_string().as_bytes());
            memory.of(b"pending");
            assert!(memory.scans.len() <= SCANS);
        }
        assert_eq!(memory.of(b"pending").start(0).id, 7);
        assert_eq!(memory.of(b"0").start(0), Position::START);
    }
}
