//! Watches the worker at a stream of tokens: its backlog all the time, its cost between two points in time.
//!
//! Counting the queue would itself step over what was deleted from it. So the backlog is the tokens that were
//! made, by their sequence, less those that job_runs says were taken; tokens that are still to be committed
//! count as waiting.

use std::time::{Duration, Instant, SystemTime};

use postgres::{Client, Statement};

/// How often the backlog is looked at.
const SAMPLING: Duration = Duration::from_millis(20);

/// A point in time.
pub struct Mark {
    time: SystemTime,
    /// Processor time of the worker so far.
    processor: Duration,
}

/// What the worker did between two marks. All in milliseconds.
pub struct Window {
    /// For 100 tokens, says job_runs: statements only, without commits and looks at the queue.
    pub cost: f64,
    /// The median batch.
    pub median: f64,
    /// The longest batch.
    pub longest: f64,
    /// Processor time for 100 tokens: all that the process did.
    pub processor: f64,
}

/// The watcher. It starts with an empty queue.
pub struct Watch {
    client: Client,
    statement: Statement,
    worker: i32,
    began: Instant,
    /// The last token made before, and the last one made.
    base: i64,
    last: i64,
    /// Tokens taken since, up to and including this row of job_runs.
    taken: i64,
    run: i64,
    largest: i64,
}

impl Watch {
    /// Starts to watch the worker with this process id.
    pub fn start(mut client: Client, worker: i32) -> Self {
        let statement = client.prepare(include_str!("backlog.sql")).unwrap();
        let mut watch = Self {
            client,
            statement,
            worker,
            began: Instant::now(),
            base: 0,
            last: 0,
            taken: 0,
            run: 0,
            largest: 0,
        };
        watch.look();
        (watch.base, watch.taken, watch.largest) = (watch.last, 0, 0);
        watch.began = Instant::now();
        watch
    }

    /// Watches until so many seconds after the start.
    pub fn until(&mut self, second: u32) -> Mark {
        let deadline = self.began + Duration::from_secs(second.into());
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            self.look();
            self.largest = self.largest.max(self.last - self.base - self.taken);
            std::thread::sleep(left.min(SAMPLING));
        }
        Mark {
            time: SystemTime::now(),
            processor: processor_time(self.worker),
        }
    }

    fn look(&mut self) {
        let row = self
            .client
            .query_one(&self.statement, &[&self.run])
            .unwrap();
        self.last = row.get(0);
        self.taken += row.get::<_, i64>(1);
        self.run = row.get(2);
    }

    /// Tokens made since the start.
    pub fn made(&self) -> i64 {
        self.last - self.base
    }

    /// The largest backlog so far, in tokens.
    pub fn largest(&self) -> i64 {
        self.largest
    }

    /// What the worker did between two marks.
    pub fn window(&mut self, from: &Mark, to: &Mark) -> Window {
        let row = self
            .client
            .query_one(include_str!("window.sql"), &[&from.time, &to.time])
            .unwrap();
        let (tokens, total): (f64, f64) = (row.get(0), row.get(1));
        let processor = to.processor.saturating_sub(from.processor).as_secs_f64() * 1_000.0;
        Window {
            cost: total / tokens * 100.0,
            median: row.get(2),
            longest: row.get(3),
            processor: processor / tokens * 100.0,
        }
    }
}

/// How long a process was on a processor so far.
fn processor_time(pid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a worker that lives, on Linux"))
}
