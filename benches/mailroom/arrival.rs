//! How long a mail takes to the provider: until the provider's server has read the request, from when its commit was
//! acknowledged, and from when the application began to write it.
//!
//! A is `mailroom_send` and the worker, which signs each request. B is graphile-worker, the same message in the payload
//! of a job, whose task posts it by undici. The server, in Node.js, and the writers here read the same clock. Idle: a
//! commit now and then. Under load: commits at a fixed rate over sixteen connections; a writer that cannot keep up with
//! the rate is late, and what it is late by counts from the beginning.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, PATIENCE};
use crate::ground;
use crate::partners::{self, Provider};
use crate::plan::Effort;
use crate::post::Post;
use crate::table::{Row, Unit, percentile};
use crate::turns::in_turn;

/// Commits a second under load.
const RATE: u32 = 1_000;

/// A database, and the statement that sends the mail with a number.
const WAYS: [(&str, &str); 2] = [
    (
        "app",
        "SELECT mailroom_send('user@example.com', 'Hello ' || $1::bigint, 'Dear user, this is a text.')",
    ),
    (
        "graphile",
        "SELECT graphile_worker.add_job('deliver', json_build_object('recipients', ARRAY['user@example.com'], \
         'subject', 'Hello ' || $1::bigint, 'text', 'Dear user, this is a text.'))",
    ),
];

/// How mails are written.
struct Load {
    name: String,
    count: u32,
    writers: usize,
    /// Microseconds from one mail to the next, at least and at most.
    pause: Range<u64>,
}

/// The rows of arrival.
pub fn measure(effort: Effort) -> Vec<Row> {
    let provider = Provider::with_times();
    let post = Post::start_at(&provider.endpoint(), &ground::SETTINGS);
    let cluster = &post.cluster;
    drop(partners::create_graphile_database(cluster, WAYS[1].0));
    let _graphile = partners::start_graphile(cluster, WAYS[1].0, &provider.endpoint());
    let loads = [
        Load {
            name: "idle".to_owned(),
            count: effort.of(300, 30),
            writers: 1,
            // Not in step with anything.
            pause: 10_000..25_000,
        },
        Load {
            name: format!("{RATE}/s"),
            count: effort.of(4 * RATE, RATE / 2),
            writers: 16,
            pause: 1_000_000 / u64::from(RATE)..1_000_000 / u64::from(RATE) + 1,
        },
    ];
    let mut rows = Vec::new();
    let mut numbers = 0..;
    for load in &loads {
        let mut measured: Vec<(Row, Span, f64)> = Vec::new();
        for (from, span) in [("commit", Span::Commit), ("begin", Span::Begin)] {
            for (part, value) in [("p50", 0.5), ("p99", 0.99)] {
                let name = format!(
                    "{from} to request, {}, {part} of {}: mailroom / graphile-worker",
                    load.name, load.count
                );
                measured.push((Row::new(name, Unit::Millis), span, value));
            }
        }
        for round in 0..effort.of(5, 1) {
            let mails = in_turn::<_, 2>(round, |which| {
                // Plans and connections are made.
                write(cluster, &provider, &mut numbers, WAYS[which], load, 50);
                write(
                    cluster,
                    &provider,
                    &mut numbers,
                    WAYS[which],
                    load,
                    load.count,
                )
            });
            for (row, span, part) in &mut measured {
                let [a, b] = mails.each_ref().map(|mails| span.percentile(mails, *part));
                row.add(a, b);
            }
        }
        rows.extend(measured.into_iter().map(|(row, ..)| row));
    }
    rows
}

/// When what happened to a mail, in nanoseconds.
struct Mail {
    begun: i64,
    committed: i64,
    read: i64,
}

/// What is measured of a mail, which ends with the request.
#[derive(Clone, Copy)]
enum Span {
    Commit,
    Begin,
}

impl Span {
    /// In milliseconds.
    fn percentile(self, mails: &[Mail], part: f64) -> f64 {
        let mut spans: Vec<f64> = mails
            .iter()
            .map(|mail| match self {
                Self::Commit => mail.read - mail.committed,
                Self::Begin => mail.read - mail.begun,
            })
            .map(|span| span as f64 / 1e6)
            .collect();
        spans.sort_by(f64::total_cmp);
        percentile(&spans, part)
    }
}

/// Has so many mails sent, and waits until the server has them.
fn write(
    cluster: &Cluster,
    provider: &Provider,
    numbers: &mut impl Iterator<Item = i64>,
    (database, insert): (&str, &str),
    load: &Load,
    count: u32,
) -> Vec<Mail> {
    let before = provider.taken();
    let mut due = monotonic() + 100_000_000;
    let mails: Vec<(i64, i64)> = numbers
        .take(count as usize)
        .map(|number| {
            let random = RandomState::new().build_hasher().finish();
            let pause = load.pause.start + random % (load.pause.end - load.pause.start);
            due += 1_000 * pause.cast_signed();
            (number, due)
        })
        .collect();
    let written: Vec<(i64, i64, i64)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..load.writers)
            .map(|writer| {
                let mails = mails.iter().skip(writer).step_by(load.writers);
                scope.spawn(move || {
                    let mut client = cluster.connect(database);
                    let statement = client.prepare(insert).unwrap();
                    let write = |(number, due): &(i64, i64)| {
                        let early = u64::try_from(due - monotonic()).unwrap_or(0);
                        std::thread::sleep(Duration::from_nanos(early));
                        client.query(&statement, &[number]).unwrap();
                        (*number, *due, monotonic())
                    };
                    mails.map(write).collect::<Vec<_>>()
                })
            })
            .collect();
        let written = writers.into_iter().map(|writer| writer.join().unwrap());
        written.flatten().collect()
    });
    let deadline = Instant::now() + PATIENCE;
    while provider.taken() < before + i64::from(count) {
        assert!(Instant::now() < deadline, "mails never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = provider.times();
    written
        .into_iter()
        .map(|(number, begun, committed)| Mail {
            begun,
            committed,
            read: read[&number],
        })
        .collect()
}

/// Nanoseconds of the clock that all processes share.
fn monotonic() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to the place that it is given, which is there.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(status, 0);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
