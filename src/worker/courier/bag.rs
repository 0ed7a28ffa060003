//! What is claimed and not handed over yet, the most urgent first.

use std::collections::BTreeMap;

use crate::delivery::engine::Letter;

/// Letters by priority, and within one in the order in which they were claimed. One that comes back has its old place.
#[derive(Default)]
pub(super) struct Bag {
    letters: BTreeMap<(i16, i64, i64), Letter>,
}

impl Bag {
    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Puts one in its place.
    pub(super) fn put(&mut self, letter: Letter) {
        self.letters.insert(letter.place(), letter);
    }

    /// The one that is next.
    pub(super) fn first(&self) -> Option<&Letter> {
        self.letters.values().next()
    }

    /// Takes that one.
    pub(super) fn take_first(&mut self) -> Option<Letter> {
        self.letters.pop_first().map(|(_, letter)| letter)
    }

    /// Takes the first one of which this is true.
    pub(super) fn take(&mut self, is_wanted: impl Fn(&Letter) -> bool) -> Option<Letter> {
        let place = self.letters.values().find(|l| is_wanted(l))?.place();
        self.letters.remove(&place)
    }

    /// Takes all.
    pub(super) fn take_all(&mut self) -> Vec<Letter> {
        std::mem::take(&mut self.letters).into_values().collect()
    }
}
