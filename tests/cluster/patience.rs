//! Waiting for conditions, and what a machine under load does to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Stops what runs beside a test or a measurement, also when that fails.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Notes for how long the machine kept a thread from running that wanted to.
///
/// A test whose claim holds on a machine that runs its threads only (a worker that waits two seconds for an answer,
/// say) begins again when the machine did not, instead of asking less.
pub struct Halts {
    longest: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Halts {
    /// Looks from now on.
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

    /// The longest halt so far; some milliseconds of it are no halt at all.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for Halts {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Waits until `condition` returns something, looking again and again; fails the test after [`PATIENCE`].
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    eventually_or_tell(what, || condition().ok_or("nothing of it"))
}

/// As [`eventually`], for a condition that says what it found instead; the last of it is told when the test fails.
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
            // What takes long is looked at less often: many tests wait at a time, and a look costs others the processor.
            Err(_) => std::thread::sleep(
                (begin.elapsed() / 20).clamp(Duration::from_millis(5), Duration::from_millis(50)),
            ),
        }
    }
}
