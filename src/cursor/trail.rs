//! Marks in the range that a session has scanned, so that it can scan this range again piece by piece.
//!
//! A dead row stays in an index until vacuum may remove it, which an old snapshot can delay for hours. A statement
//! cannot stop after a number of dead rows, but it can stop at a key. A session has claimed or skipped every row
//! before its position; so it counts the pages of its scans and sets a mark after about [`PIECE`] pages. Pieces that
//! turn out to be cheap together are merged, and one that turns out to be large is divided.

use std::collections::BTreeSet;
use std::ops::Bound;

/// Pages between two marks; reading them takes about a millisecond if they are cached.
pub const PIECE: i64 = 1_000;
/// A piece of more pages than this is divided.
pub const LARGE_PIECE: i64 = 4 * PIECE;
/// Maximum number of marks. Beyond it every second one is removed, so that pieces become twice as long.
const MARKS: usize = 4_096;

/// A key of an index whose first column is a time.
pub trait Key: Copy + Ord {
    /// Keys that divide the range between these two, of which `None` is the beginning. They need not be in the range.
    fn divide(after: Option<Self>, end: Self) -> Vec<Self>;
}

/// Times in microseconds that divide a range: the middle, or, if it has no beginning, 2ⁿ seconds before its end.
pub fn divide_time(after: Option<i64>, end: i64) -> Vec<i64> {
    match after {
        Some(after) => vec![i64::midpoint(after, end)],
        None => (0..=30)
            .map(|n| end.saturating_sub(1_000_000 << n))
            .collect(),
    }
}

impl Key for i64 {
    fn divide(after: Option<Self>, end: Self) -> Vec<Self> {
        divide_time(after, end)
    }
}

/// The marks of one scan, by key.
pub struct Trail<K> {
    marks: BTreeSet<K>,
    /// Pages read since the latest mark.
    pages: i64,
    /// Pages of the latest piece, with those that were merged with it.
    merged: i64,
}

impl<K> Default for Trail<K> {
    fn default() -> Self {
        Self {
            marks: BTreeSet::new(),
            pages: 0,
            merged: 0,
        }
    }
}

impl<K: Key> Trail<K> {
    /// Records that a scan reached this key and read this many pages.
    pub fn add(&mut self, at: K, pages: i64) {
        self.pages += pages;
        if self.pages >= PIECE {
            self.pages = 0;
            self.mark(at);
        }
    }

    fn mark(&mut self, at: K) {
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

    /// Records that the piece between these keys was scanned in this many pages. Merges it with the one before if they
    /// are cheap together; divides it if it is large.
    pub fn looked(&mut self, after: Option<K>, end: K, pages: i64) {
        match after {
            Some(after) if self.merged + pages < PIECE / 2 => {
                self.marks.remove(&after);
                self.merged += pages;
            }
            _ => self.merged = pages,
        }
        self.divide(after, end, pages);
    }

    /// Records that the scan of a piece stopped at `end`, before the end of the piece, after this many pages.
    pub fn stopped(&mut self, after: Option<K>, end: K, pages: i64) {
        self.merged = pages;
        if pages > LARGE_PIECE {
            self.mark(end);
        }
        self.divide(after, end, pages);
    }

    fn divide(&mut self, after: Option<K>, end: K, pages: i64) {
        if pages <= LARGE_PIECE {
            return;
        }
        for key in K::divide(after, end) {
            if after.is_none_or(|after| after < key) && key < end {
                self.mark(key);
            }
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
pub mod tests {
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
        trail.looked(None, 1, PIECE);
        trail.looked(Some(1), 2, 10);
        trail.looked(Some(2), 3, 10);
        assert_eq!(trail.piece(None, 9), 1);
        assert_eq!(trail.piece(Some(1), 9), 3);
    }

    #[test]
    fn pieces_that_are_each_cheap_do_not_become_one_that_is_not() {
        // Dead rows on one page count as one page, so that each piece reads a fifth of what the scan before it read.
        let mut trail = Trail::default();
        for at in 1..=100 {
            trail.add(at, PIECE);
        }
        for _ in 0..10 {
            let mut after = None;
            let mut most = 0;
            while after != Some(100) {
                let end = trail.piece(after, 100);
                let pages = (end - after.unwrap_or(0)) * PIECE / 5;
                trail.looked(after, end, pages);
                most = most.max(pages);
                after = Some(end);
            }
            assert!(most <= PIECE, "{most} pages");
        }
    }

    /// Scans 50 rounds of pieces, each of which reads `pages`. Returns the number of rounds until all stay small.
    pub fn rounds_until_small<K: Key>(end: K, pages: impl Fn(Option<K>, K) -> i64) -> usize {
        let mut trail = Trail::default();
        let mut rounds = 0;
        for round in 1..=50 {
            let mut after = None;
            while after.is_none_or(|after| after < end) {
                let until = trail.piece(after, end);
                let cost = pages(after, until);
                trail.looked(after, until, cost);
                if cost > LARGE_PIECE {
                    rounds = round;
                }
                after = Some(until);
            }
        }
        rounds
    }

    #[test]
    fn what_was_dead_before_the_session_began_is_divided_until_pieces_are_small() {
        // A million pages, evenly in this time before `end`, and no mark.
        for seconds in [1, 600, 3_600, 86_400 * 400] {
            let (end, length) = (1_000_000_i64 << 31, 1_000_000 * seconds);
            let cost = |after: Option<i64>, until: i64| {
                let from = after.unwrap_or(0).max(end - length);
                ((until - from).max(0) as f64 / length as f64 * 1e6) as i64
            };
            assert!(rounds_until_small(end, cost) <= 14, "{seconds} s");
        }
    }

    #[test]
    fn marks_are_bounded() {
        let mut trail = Trail::default();
        for at in 0..10 * MARKS as i64 {
            trail.add(at, PIECE);
        }
        assert!(trail.marks.len() <= MARKS);
        assert!(
            trail.marks.contains(&(10 * MARKS as i64 - 1)),
            "the latest is kept"
        );
    }
}
