//! Marks in the range that a session has scanned, so that it can scan this range again piece by piece.
//!
//! A dead row stays in an index until vacuum may remove it, which an old snapshot can delay for hours. A statement
//! cannot stop after a number of dead rows, but it can stop at a key. A session has claimed or skipped every row
//! before its position; so it counts the pages of its scans and sets a mark every [`PIECE`] pages. A piece that costs
//! less later, because of vacuum, is merged with the next.

use std::collections::BTreeSet;
use std::ops::Bound;

/// Pages between two marks; reading them takes about a millisecond, or ten from disk.
pub const PIECE: i64 = 1_000;
/// Maximum number of marks. Beyond it every second one is removed, so that pieces become twice as long.
const MARKS: usize = 4_096;

/// The marks of one scan, by key.
pub struct Trail<K> {
    marks: BTreeSet<K>,
    /// Pages read since the latest mark.
    pages: i64,
}

impl<K> Default for Trail<K> {
    fn default() -> Self {
        Self {
            marks: BTreeSet::new(),
            pages: 0,
        }
    }
}

impl<K: Copy + Ord> Trail<K> {
    /// Records that a scan reached this key and read this many pages.
    pub fn add(&mut self, at: K, pages: i64) {
        self.pages += pages;
        if self.pages < PIECE {
            return;
        }
        self.pages = 0;
        self.marks.insert(at);
        if self.marks.len() > MARKS {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// Returns the end of the piece that begins after the key `after` (`None`: at the beginning): the next mark, or
    /// `end` if that is before it.
    pub fn piece(&self, after: Option<K>, end: K) -> K {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.marks.range((after, Bound::Unbounded)).next();
        next.map_or(end, |mark| end.min(*mark))
    }

    /// Records that the piece up to this key was scanned in this many pages; merges a cheap piece with the next.
    pub fn looked(&mut self, end: K, pages: i64) {
        if pages < PIECE / 4 {
            self.marks.remove(&end);
        }
    }

    /// Keeps the latest `count` marks and removes the others.
    pub fn keep(&mut self, count: i64) {
        while i64::try_from(self.marks.len()).is_ok_and(|marks| marks > count) {
            self.marks.pop_first();
        }
    }

    /// Removes all marks, because the whole range is cheap to scan.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.pages = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_left_every_so_many_pages() {
        let mut trail = Trail::default();
        trail.add(1, PIECE / 2);
        trail.add(2, PIECE / 2);
        trail.add(3, PIECE);
        trail.add(4, PIECE / 2);
        assert_eq!(trail.piece(None, 9), 2);
        assert_eq!(trail.piece(Some(2), 9), 3);
        assert_eq!(trail.piece(Some(3), 9), 9);
        assert_eq!(trail.piece(Some(0), 1), 1, "not beyond the end");
    }

    #[test]
    fn the_latest_marks_are_kept() {
        let mut trail = Trail::default();
        for at in 1..6 {
            trail.add(at, PIECE);
        }
        trail.keep(2);
        assert_eq!(trail.piece(None, 9), 4);
        assert_eq!(trail.piece(Some(4), 9), 5);
        trail.keep(0);
        assert_eq!(trail.piece(None, 9), 9);
    }

    #[test]
    fn a_piece_that_became_cheap_is_one_with_the_next() {
        let mut trail = Trail::default();
        for at in 1..4 {
            trail.add(at, PIECE);
        }
        trail.looked(1, PIECE);
        trail.looked(2, 10);
        assert_eq!(trail.piece(None, 9), 1);
        assert_eq!(trail.piece(Some(1), 9), 3);
    }

    #[test]
    fn marks_are_bounded() {
        let mut trail = Trail::default();
        for at in 0..10 * MARKS {
            trail.add(at, PIECE);
        }
        assert!(trail.marks.len() <= MARKS);
        assert!(
            trail.marks.contains(&(10 * MARKS - 1)),
            "the latest is kept"
        );
    }
}
