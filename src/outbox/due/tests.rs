//! Positions, sweeps and pieces of scans for due mail.

use std::cmp::Ordering;
use std::time::Instant;

use super::scan::*;
use super::{Memory, TRANSPORTS};
use crate::cursor::trail::PIECE;
use crate::cursor::trail::tests::rounds_until_small;
use proptest::prelude::*;

const NOW: i64 = 1_000_000_000;

fn at(send_at: i64, id: i64) -> Position {
    Position { send_at, id }
}

/// Runs a complete scan with these notes.
fn scan(due: &mut Due, notes: &[Note]) {
    due.begin(Instant::now(), 0);
    due.notes.extend(notes);
    due.end(Instant::now(), 0, false, 0, NOW);
}

fn came_to(priority: i16, at: Position) -> Note {
    Note {
        priority,
        at,
        kind: Kind::Scan,
        pages: 0,
    }
}

fn swept_to(priority: i16, at: Position, back: bool, unfinished: bool) -> Note {
    Note {
        kind: Kind::Sweep { back, unfinished },
        ..came_to(priority, at)
    }
}

#[test]
fn positions_advance_by_priority_when_a_scan_ends() {
    let mut due = Due::default();
    due.begin(Instant::now(), 0);
    due.notes.push(came_to(0, at(50, 5)));
    assert!(due.priorities.is_empty(), "not before");
    due.begin(Instant::now(), 0);
    due.end(Instant::now(), 0, false, 0, NOW);
    assert!(due.priorities.is_empty(), "nor ever, of a scan that failed");
    scan(
        &mut due,
        &[
            came_to(0, at(50, 5)),
            came_to(-10, at(90, 1)),
            came_to(0, at(50, 4)),
        ],
    );
    assert_eq!(due.priorities[&0].position, at(50, 5));
    assert_eq!(due.priorities[&-10].position, at(90, 1));
    assert_eq!(due.priorities.keys().next(), Some(&-10), "urgent first");
}

#[test]
fn a_sweep_that_found_enough_moves_a_position_back() {
    let mut due = Due::default();
    scan(&mut due, &[came_to(0, at(900, 1))]);
    scan(&mut due, &[swept_to(0, at(120, 7), true, false)]);
    assert_eq!(due.priorities[&0].position, at(120, 7));
}

#[test]
fn what_was_found_and_not_claimed_is_found_again() {
    let mut due = Due::default();
    scan(&mut due, &[came_to(0, at(900, 1))]);
    due.put_back(0, at(120, 7));
    assert_eq!(due.priorities[&0].position, at(120, 7));
    due.put_back(0, at(500, 1));
    assert_eq!(due.priorities[&0].position, at(120, 7));
    due.put_back(1, at(120, 7));
    assert!(!due.priorities.contains_key(&1), "a sweep finds it");
}

#[test]
fn one_dear_sweep_does_not_make_sweeps_dear() {
    let now = Instant::now();
    let mut due = Due::default();
    let mut sweep = |pages| {
        due.begin(now, 100);
        due.end(now, 100 + pages, true, 0, NOW);
        due.pages.1 < CHEAP
    };
    assert!(sweep(CHEAP), "the first of the session");
    assert!(!sweep(CHEAP), "two in a row");
    assert!(sweep(10));
    assert!(sweep(CHEAP), "one dear one");
    assert!(!sweep(CHEAP));
}

#[test]
fn a_dear_sweep_leaves_the_marks_of_scans() {
    let mut due = Due::default();
    let scanned = Note {
        pages: PIECE,
        ..came_to(0, at(10, 1))
    };
    scan(&mut due, &[scanned]);
    let now = Instant::now();
    let mut sweep = |pages| {
        due.begin(now, 0);
        due.notes.push(swept_to(0, at(20, 1), false, false));
        due.end(now, pages, true, 0, NOW);
        due.priorities[&0].piece().1
    };
    assert_eq!(sweep(PIECE), at(10, 1));
    assert_eq!(sweep(PIECE - 1), at(20, 1), "all of it is cheap");
}

#[test]
fn what_is_found_does_not_make_sweeps_dear() {
    let now = Instant::now();
    let mut due = Due::default();
    for _ in 0..3 {
        due.begin(now, 0);
        due.end(now, 3 * CHEAP, true, 2 * CHEAP + 1, NOW);
        assert!(due.pages.1 < CHEAP);
    }
}

#[test]
fn a_sweep_that_breaks_off_goes_on_from_there() {
    let mut due = Due::default();
    scan(&mut due, &[came_to(0, at(900, 1))]);
    scan(&mut due, &[swept_to(0, at(300, 2), false, true)]);
    assert_eq!(
        due.priorities[&0].position,
        at(900, 1),
        "the scan stays ahead"
    );
    assert_eq!(due.priorities[&0].paused, Some(at(300, 2)));
    scan(&mut due, &[came_to(0, at(950, 1))]);
    assert_eq!(
        due.priorities[&0].paused,
        Some(at(300, 2)),
        "it was no sweep"
    );
    scan(&mut due, &[swept_to(0, at(400, 2), false, false)]);
    assert_eq!(due.priorities[&0].paused, None);
}

#[test]
fn a_transport_has_positions_of_its_own() {
    let mut memory = Memory::default();
    scan(memory.of(b"", false), &[came_to(0, at(50, 5))]);
    scan(memory.of(b"", true), &[came_to(0, at(60, 6))]);
    assert!(memory.of(b"relay", false).priorities.is_empty());
    assert_eq!(memory.of(b"", false).priorities[&0].position, at(50, 5));
    assert_eq!(memory.of(b"", true).priorities[&0].position, at(60, 6));
}

#[test]
fn of_too_many_transports_the_one_used_least_recently_is_forgotten() {
    let mut memory = Memory::default();
    for transport in 0..TRANSPORTS {
        let name = transport.to_string();
        scan(memory.of(name.as_bytes(), false), &[came_to(0, at(1, 1))]);
    }
    let mut known = |name: &str| !memory.of(name.as_bytes(), false).priorities.is_empty();
    assert!(known("0"));
    assert!(!known("another"), "in the place of 1");
    assert!(known("0"));
    assert!(known("2"));
    assert!(!known("1"), "in the place of 3");
    assert!(!known("3"));
    assert_eq!(memory.transports.len(), TRANSPORTS);
}

#[test]
fn priorities_beyond_the_bound_are_left_to_sweeps() {
    let mut due = Due::default();
    let all: Vec<_> = (0..300)
        .map(|priority| came_to(priority, at(1, 1)))
        .collect();
    scan(&mut due, &all);
    assert_eq!(due.priorities.len(), PRIORITIES);
}

#[test]
fn what_lies_behind_is_looked_at_piece_by_piece_once_sweeps_are_dear() {
    // These scans take no time, so the budget always allows a piece.
    let now = Instant::now();
    let mut due = Due::default();
    due.swept(CHEAP);
    due.swept(CHEAP);
    let mut scan = |notes: &[(i16, Position, Kind, i64)]| {
        assert_eq!(due.begin(now, 0), Start::Piece);
        let next: Vec<_> = due.pieces(i16::MAX).collect();
        let mut pages = 0;
        for (priority, at, kind, cost) in notes {
            pages += cost;
            due.note(pages, *priority, *at, *kind);
        }
        due.end(now, pages, false, 0, NOW);
        next
    };
    let whole = Kind::Piece { unfinished: false };
    assert_eq!(scan(&[(0, at(10, 1), Kind::Scan, PIECE)]), []);
    assert_eq!(
        scan(&[(0, at(20, 1), Kind::Scan, 10), (5, at(7, 7), Kind::Scan, 0)]),
        [(0, Position::START, at(10, 1))]
    );
    assert_eq!(
        scan(&[(0, at(10, 1), whole, PIECE)]),
        [
            (0, Position::START, at(10, 1)),
            (5, Position::START, at(7, 7))
        ]
    );
    assert_eq!(
        scan(&[(0, at(15, 1), Kind::Piece { unfinished: true }, 5)]),
        [(0, at(10, 1), at(20, 1)), (5, Position::START, at(7, 7))],
        "up to where the scan came meanwhile"
    );
    assert_eq!(
        scan(&[(0, at(20, 1), whole, 5)]),
        [(0, at(15, 1), at(20, 1)), (5, Position::START, at(7, 7))]
    );
    assert_eq!(
        scan(&[(5, at(7, 7), whole, 5)]),
        [(5, Position::START, at(7, 7))]
    );
    assert_eq!(due.begin(now, 0), Start::Sweep, "the round took few pages");
}

#[test]
fn urgent_mail_is_looked_for_while_claims_are_limited_to_it_and_the_other_mail_after_that() {
    let now = Instant::now();
    let mut due = Due::default();
    let all = [-20, -10, 0, 5].map(|priority| came_to(priority, at(10, 1)));
    scan(&mut due, &all);
    due.swept(CHEAP);
    due.swept(CHEAP);
    let mut look = |last_priority| {
        assert_eq!(due.begin(now, 0), Start::Piece);
        let (priority, _, until) = due.pieces(last_priority).next().unwrap();
        due.note(
            2 * PIECE,
            priority,
            until,
            Kind::Piece { unfinished: false },
        );
        due.end(now, 0, false, 0, NOW);
        priority
    };
    assert_eq!([(); 3].map(|()| look(i16::MAX)), [-20, -10, 0]);
    assert_eq!([(); 5].map(|()| look(-10)), [-20, -10, -20, -10, -20]);
    assert_eq!(look(i16::MAX), 5, "the round goes on");
    assert_eq!([(); 4].map(|()| look(i16::MAX)), [-20, -10, 0, 5]);
    // In turn.
    let turns: Vec<_> = (0..6).flat_map(|_| [look(i16::MAX), look(-10)]).collect();
    for priority in [-20, -10, 0, 5] {
        assert!(turns.contains(&priority), "{turns:?}");
    }
}

#[test]
fn dead_rows_that_were_due_at_the_same_time_are_divided_by_id() {
    for end in [at(9_000, i64::MIN), at(8_000, 1_000_001), at(8_001, 5)] {
        // A million pages, a row on each.
        let place = |position: Position| match position.send_at.cmp(&8_000) {
            Ordering::Less => 0,
            Ordering::Equal => position.id.clamp(0, 1_000_000),
            Ordering::Greater => 1_000_000,
        };
        let pages = |after: Option<_>, until| place(until) - after.map_or(0, place);
        let rounds = rounds_until_small(end, pages);
        assert!(rounds < 50, "{end:?}");
    }
}

proptest! {
    #[test]
    fn a_position_never_comes_near_the_present(
        notes in prop::collection::vec((any::<bool>(), -3_i16..3, any::<i64>(), any::<i64>()), 1..50),
    ) {
        let mut due = Due::default();
        for (back, priority, send_at, id) in notes {
            scan(&mut due, &[swept_to(priority, at(send_at, id), back, false)]);
            // A row that is scheduled for now and committed within the slack is after the position.
            prop_assert!(due.priorities[&priority].position < at(NOW - SLACK, 1));
        }
    }
}
