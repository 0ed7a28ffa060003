//! Waiting for conditions, and delays of a machine under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that a test waits for a condition.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// When dropped, stops the threads beside a test or a measurement, also if that panics.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures for how long the machine kept a runnable thread from running.
///
/// A test whose assertion holds only while threads run without delay (a worker waits two seconds for a response, for
/// example) starts over after a long halt, instead of asserting less.
pub struct Halts {
    longest: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Halts {
    /// Starts to measure.
    pub fn watch() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let stopped = Arc::new(AtomicBool::new(false));
        let (theirs, end) = (Arc::clone(&longest), Arc::clone(&stopped));
        std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(Duration::from_millis(10));
                let gap = before.elapsed().as_millis().try_into().unwrap();
                theirs.fetch_max(gap, Ordering::Relaxed);
            }
        });
        Self { longest, stopped }
    }

    /// The longest time that a sleep of 10 ms took so far; some milliseconds more are no halt.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for Halts {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Polls `condition` until it returns a value; fails the test after [`PATIENCE`].
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    eventually_or_tell(what, || condition().ok_or("nothing of it"))
}

/// As [`eventually`], for a condition that returns what it found instead; a failure shows the last of these.
pub fn eventually_or_tell<T, E: std::fmt::Display>(
    what: &str,
    mut condition: impl FnMut() -> Result<T, E>,
) -> T {
    let begin = Instant::now();
    loop {
        match condition() {
            Ok(value) => return value,
            Err(seen) if begin.elapsed() >= PATIENCE => {
                panic!("gave up waiting for {what}: {seen}")
            }
            // The interval grows with the time waited: many tests wait at the same time, and each check costs CPU time.
            Err(_) => std::thread::sleep(
                (begin.elapsed() / 20).clamp(Duration::from_millis(5), Duration::from_millis(50)),
            ),
        }
    }
}
