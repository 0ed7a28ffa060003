//! Kept connections, and their maximum number.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::session::Session;

/// How long an unused connection is kept: shorter than the timeout of most servers, so that they do not close it first.
pub(super) const IDLE: Duration = Duration::from_secs(20);

/// The connections of one relay.
pub(super) struct Pool {
    kept: Mutex<Kept>,
    permits: Semaphore,
    connections: usize,
    idle: Duration,
}

struct Kept {
    /// Unused sessions and since when, the latest last.
    sessions: Vec<(Instant, Session)>,
    /// Whether a task runs that closes idle sessions.
    is_watched: bool,
}

impl Pool {
    /// A pool of at most `connections` connections, closed after `idle` without use.
    pub fn new(connections: usize, idle: Duration) -> Self {
        let connections = connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            kept: Mutex::new(Kept {
                sessions: Vec::new(),
                is_watched: false,
            }),
            permits: Semaphore::new(connections),
            connections,
            idle,
        }
    }

    /// Waits until a connection may be used; it counts as used while the permit is held.
    pub async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.permits.acquire().await.ok()
    }

    /// Whether there is at most one permit in use.
    pub fn is_single(&self) -> bool {
        self.permits.available_permits() + 1 >= self.connections
    }

    /// Permits that are free.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.permits.available_permits()
    }

    /// The kept connection that was used last.
    pub fn take(&self) -> Option<Session> {
        let (since, session) = self.lock().sessions.pop()?;
        // If this one is too old, all others are.
        (since.elapsed() < self.idle).then_some(session)
    }

    /// Keeps a connection if it is usable, or closes it.
    pub fn give_back(self: &Arc<Self>, session: Session) {
        if !session.is_usable() {
            tokio::spawn(session.quit());
            return;
        }
        let mut kept = self.lock();
        kept.sessions.push((Instant::now(), session));
        if !std::mem::replace(&mut kept.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    /// Closes idle connections; returns when the next one becomes idle for too long.
    fn close_idle(&self) -> Option<Instant> {
        let mut kept = self.lock();
        let old = kept
            .sessions
            .iter()
            .take_while(|(since, _)| since.elapsed() >= self.idle)
            .count();
        for (_, session) in kept.sessions.drain(..old) {
            tokio::spawn(session.quit());
        }
        let next = kept.sessions.first().map(|(since, _)| *since + self.idle);
        kept.is_watched = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // The value behind the mutex is consistent even after a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes idle connections until none is kept.
async fn watch(pool: Weak<Pool>) {
    loop {
        let next = pool.upgrade().and_then(|pool| pool.close_idle());
        match next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => return,
        }
    }
}
