//! Where this session's next scan of `pending` starts.
//!
//! Rows that were taken stay in the index until vacuum may remove them, which it may not while any session holds an
//! old snapshot. A scan that always started at the beginning would skip all of them, and each batch would cost more
//! than the one before (I4). So each session remembers, per lane, the highest token id that it took, and starts after
//! it.
//!
//! That position is a hint. Rows can appear before it: ids commit out of order, and a rollback returns what it took.
//! Two rules keep rows from being lost. A scan that finds fewer rows than requested also reads before the position
//! before it reports an empty queue (`_delete_pending` does). And a full scan, a *sweep*, is due as soon as its budget
//! allows ([`crate::cursor::sweep`]).
//!
//! The state is local to this process; losing it costs one sweep.

use std::cell::RefCell;
use std::time::Instant;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::cursor::sweep::Sweeps;
use crate::restore;
use crate::shared_memory::announce;

#[derive(Default)]
struct Scan {
    /// The highest token id taken in lane 0 (urgent) and lane 1 (normal).
    position: [i64; 2],
    sweeps: Sweeps,
}

impl Scan {
    fn begin(&mut self, now: Instant) -> bool {
        self.sweeps.begin(now);
        self.sweeps.is_due(now)
    }

    fn end(&mut self, now: Instant, swept: bool, high: [Option<i64>; 2]) {
        for (position, high) in self.position.iter_mut().zip(high) {
            match high {
                None => {}
                // A sweep takes the lowest rows, so rows that it did not reach are after its highest, perhaps before
                // the old position.
                Some(high) if swept => *position = high,
                Some(high) => *position = high.max(*position),
            }
        }
        self.sweeps.end(now, swept);
    }
}

thread_local! {
    static SCAN: RefCell<Scan> = RefCell::new(Scan::default());
}

/// Begins a scan. Returns whether it must start at the very beginning.
///
/// # Errors
/// 55000 if a session restores a dump or waits to.
#[pg_extern(sql = false)]
fn _scan_begin() -> Result<bool, ErrorReport> {
    restore::refuse_while_restoring()?;
    Ok(SCAN.with_borrow_mut(|scan| scan.begin(Instant::now())))
}

/// Returns the token id after which a scan of this lane starts, unless it must start at the very beginning.
#[pg_extern(sql = false)]
fn _scan_position(lane: i16) -> i64 {
    SCAN.with_borrow(|scan| {
        usize::try_from(lane)
            .ok()
            .and_then(|lane| scan.position.get(lane).copied())
    })
    .unwrap_or(0)
}

/// Ends a scan with the highest token id taken in each lane.
#[pg_extern(sql = false)]
fn _scan_end(swept: bool, urgent_high: Option<i64>, normal_high: Option<i64>) {
    let high = [urgent_high, normal_high];
    if high.iter().any(Option::is_some) {
        announce::took();
    }
    SCAN.with_borrow_mut(|scan| scan.end(Instant::now(), swept, high));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_advance_by_lane() {
        let mut scan = Scan::default();
        let now = Instant::now();
        scan.end(now, false, [Some(500), None]);
        scan.end(now, false, [None, Some(400)]);
        scan.end(now, false, [Some(450), Some(410)]);
        assert_eq!(scan.position, [500, 410]);
    }

    #[test]
    fn a_sweep_may_move_a_position_back() {
        let mut scan = Scan::default();
        let now = Instant::now();
        scan.end(now, false, [None, Some(900)]);
        scan.end(now, true, [None, Some(120)]);
        assert_eq!(
            scan.position,
            [0, 120],
            "late rows between 120 and 900 are still to come"
        );
    }
}
