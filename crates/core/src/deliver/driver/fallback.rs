//! What transports are told of those that are paused: mail of these may fall back on them.

use std::sync::Arc;
use std::time::Duration;

use super::{Driver, Transport};
use crate::deliver::events::Event;

/// So often the other transports look whether they may send what a paused one does not.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);

impl Driver {
    /// Has the others look when a transport is paused, and now and then while it is: they may send what waits for it.
    pub(super) fn look_for_fallback(&mut self) {
        let mut is_any_paused = false;
        let mut is_news = false;
        for transport in &mut self.transports {
            let is_paused = transport.is_paused() && !transport.is_leaving;
            is_any_paused |= is_paused;
            is_news |= is_paused && !transport.is_known_as_paused;
            transport.is_known_as_paused = is_paused;
        }
        let is_other = |transport: &Transport| !transport.is_paused() && !transport.is_leaving;
        let is_there_another = self.transports.iter().any(is_other);
        if !is_any_paused || !is_there_another || self.stopping || !self.allowed {
            self.fallback_at = None;
            return;
        }
        let now = self.origin.elapsed();
        if !is_news && self.fallback_at.is_some_and(|at| now < at) {
            return;
        }
        self.fallback_at = Some(now + FALLBACK_INTERVAL);
        for place in 0..self.transports.len() {
            if is_other(&self.transports[place]) {
                self.handle(place, Event::Look { urgent: false });
            }
        }
    }

    /// The other transports that are paused, and for how long; none for one that is paused itself.
    pub(super) fn others_paused(&self, place: usize) -> Vec<(Arc<str>, Duration)> {
        if self.transports[place].is_paused() {
            return Vec::new();
        }
        let now = self.origin.elapsed();
        let known = self.transports.iter().filter(|known| !known.is_leaving);
        known
            .filter_map(|known| {
                let since = known.deliverer.breaker.paused_since()?;
                Some((Arc::clone(&known.name), now.saturating_sub(since)))
            })
            .collect()
    }
}
