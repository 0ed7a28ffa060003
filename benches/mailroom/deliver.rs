//! Delivery over HTTP to a server on this machine: how fast, what slow answers cost, and how long transactions are open.
//!
//! How fast: to a server in Node.js, on the same cores. B is wrk, which sends captured requests of A again and again to
//! the same server, 64 at a time, from one thread as the worker does; it reads no mail, signs nothing and settles
//! nothing. The receiver of the other rows is ours, a thread a connection, as it has to misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, PATIENCE};
use crate::ground;
use crate::partners::{self, Provider};
use crate::plan::Effort;
use crate::post::Post;
use crate::receiver::{self, Reaction, Receiver, status};
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

const CONCURRENCY: usize = 64;
const LATENCY: Duration = Duration::from_millis(50);

/// The rows of delivery.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut rows = vec![against_wrk(effort)];
    rows.extend(with_trouble(effort));
    rows
}

fn against_wrk(effort: Effort) -> Row {
    let mut row = Row::new(
        "webhook, delivered and settled: worker / wrk -t1 -c64, replaying",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(0.8)));
    let (count, captured) = effort.of((100_000, 20_000), (2_000, 500));
    let file = partners::directory().join("requests");
    let provider = Provider::capturing(&file, captured);
    let mut post = start(&provider.endpoint());
    // Fills the file, and warms up what is measured.
    send(&mut post, &provider, 2 * captured);
    for round in 0..effort.of(9, 1) {
        let [worker, wrk] = in_turn::<_, 2>(round, |which| match which {
            0 => send(&mut post, &provider, count),
            _ => provider.wrk(&file, CONCURRENCY, effort.of(5, 1)),
        });
        row.add(worker, wrk);
    }
    row
}

/// Mails a second, from the moment that the worker may send until all are seen to be settled.
fn send(post: &mut Post, provider: &Provider, count: i64) -> f64 {
    let before = provider.taken();
    load(post, count);
    let begin = Instant::now();
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    // The server is not asked often: it has something better to do, and so has the database.
    while provider.taken() < before + count {
        assert!(begin.elapsed() < 10 * PATIENCE, "gave up on {count} mails");
        std::thread::sleep(Duration::from_millis(20));
    }
    post.wait_for("state = 'sent'", count);
    let took = begin.elapsed().as_secs_f64();
    assert_eq!(provider.taken(), before + count, "mails went twice");
    post.client
        .batch_execute("SELECT mailroom_pause(); TRUNCATE outbox CASCADE")
        .unwrap();
    count as f64 / took
}

/// A database whose worker delivers there, and waits.
pub fn start(endpoint: &str) -> Post {
    let mut settings = ground::SETTINGS.to_vec();
    settings.push("transport.timeout = '10s'");
    let mut post = Post::start_at(endpoint, &settings);
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    post
}

fn load(post: &mut Post, count: i64) {
    post.load(count);
    post.client
        .batch_execute("VACUUM (ANALYZE) outbox")
        .unwrap();
}

fn with_trouble(effort: Effort) -> [Row; 2] {
    let all_at_once = CONCURRENCY as f64 / LATENCY.as_secs_f64();
    let mut slow = Row::new(
        "answers after 50 ms: worker / concurrency by latency",
        Unit::PerSecond,
    )
    .against(all_at_once)
    .aiming_at(Some(Target::RatioAtLeast(0.9)));
    let mut longest = Row::new("longest transaction while sending / 100 ms", Unit::Millis)
        .against(100.0)
        .aiming_at(Some(Target::NeverAbove(100.0)));
    let count = effort.of(100_000, 2_000);
    for _ in 0..effort.of(9, 1) {
        longest.add_one(deliver(count, |_| status(200)).longest);
        let late = deliver(count / 5, |_| Reaction::Late(LATENCY, 200));
        slow.add_one(late.rate);
    }
    [slow, longest]
}

/// What one run came to.
struct Run {
    /// Mails a second, from the first that was claimed to the last that was settled.
    rate: f64,
    /// The longest that a transaction of the worker was seen open, in milliseconds.
    longest: f64,
}

/// Has so many mails delivered.
fn deliver(
    count: i64,
    react: impl Fn(&receiver::Request) -> Reaction + Send + Sync + 'static,
) -> Run {
    let receiver = Receiver::start(react);
    let mut post = start(&receiver.endpoint());
    load(&mut post, count);
    let watch = Transactions::watch(&post.cluster);
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    // The receiver is asked for as long as that tells enough: the server has something better to do.
    let deadline = Instant::now() + 10 * PATIENCE;
    while (receiver.count() as i64) < count {
        assert!(Instant::now() < deadline, "gave up on {count} mails");
        std::thread::sleep(Duration::from_millis(5));
    }
    post.wait_for("state = 'sent'", count);
    let took = "SELECT extract(epoch FROM max(ended_at) - min(claimed_at))::float8 FROM outbox WHERE state = 'sent'";
    let seconds: f64 = post.client.query_one(took, &[]).unwrap().get(0);
    Run {
        rate: count as f64 / seconds,
        longest: watch.stop(),
    }
}

/// Looks at the worker's transactions all the time.
struct Transactions {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<f64>,
}

impl Transactions {
    fn watch(cluster: &Cluster) -> Self {
        let mut client = cluster.connect("app");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let query = client
                .prepare(
                    "SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 * 1000 \
                     FROM pg_stat_activity WHERE backend_type = 'mailroom worker' AND xact_start IS NOT NULL",
                )
                .unwrap();
            let mut longest = 0_f64;
            while !told.load(Ordering::Acquire) {
                let age = client.query_opt(&query, &[]).unwrap();
                longest = longest.max(age.map_or(0.0, |row| row.get(0)));
                std::thread::sleep(Duration::from_millis(5));
            }
            longest
        });
        Self { stop, thread }
    }

    fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}
