//! What a worker takes that has nothing to do, what it keeps after a million batches, and how long it makes a
//! stop of the server wait.
//!
//! Idle: A is what the worker did in a minute, next to what it may do, one look each `mailroom.poll_interval` and one
//! more. Memory: A is the private memory at the end, B at a tenth of the way, and half-way: the allocator takes some
//! hundred thousand batches to settle, and what leaked would not stop then. Stops: A is a server with the
//! worker at work under load, B one without the library, where the same load writes to two bare tables.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::cluster::{Cluster, Stop, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};

/// `mailroom.poll_interval` unless it is set.
const POLL_SECONDS: u32 = 30;

/// The rows of footprint.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut rows = idle(effort);
    rows.extend(memory(effort));
    rows.push(stop(effort));
    rows
}

fn idle(effort: Effort) -> Vec<Row> {
    let cluster = Cluster::start(&["autovacuum = off"]);
    drop(ground::create_database(&cluster, "app", &[]));
    let worker = cluster.worker("app");
    let mut client = cluster.connect("postgres");
    let seconds = effort.of(60, 3);
    let allowed = f64::from(seconds / POLL_SECONDS + 1);
    let mut statements = Row::new(
        format!("idle for {seconds} s, statements of the worker: done / allowed"),
        Unit::Count,
    )
    .against(allowed)
    .aiming_at(Some(Target::RatioAtMost(1.0)));
    let mut processor = Row::new(
        format!("idle for {seconds} s, processor time: used / allowed"),
        Unit::Millis,
    )
    .against(50.0)
    .aiming_at(Some(Target::RatioAtMost(1.0)));

    // Its start is not idleness: wait until what that did is in the statistics.
    settle(&mut client);
    let (done, ticks) = (transactions(&mut client), cpu_millis(worker));
    std::thread::sleep(Duration::from_secs(seconds.into()));
    // The statistics of a process that sleeps are up to date: it reports before it does.
    statements.add_one((transactions(&mut client) - done) as f64);
    processor.add_one(cpu_millis(worker) - ticks);
    vec![statements, processor]
}

/// Number of transactions in database app, where only the worker is active. Each has one statement.
fn transactions(client: &mut Client) -> i64 {
    number(
        client,
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'app'",
    )
}

/// Waits until the statistics have not moved for two seconds, as the server delays them by up to one.
fn settle(client: &mut Client) {
    let mut last = (transactions(client), Instant::now());
    while last.1.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(100));
        let now = transactions(client);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

/// Processor time of a process, to the 10 ms of the kernel's clock.
fn cpu_millis(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u32 = [11, 12]
        .iter()
        .map(|&field| fields[field].parse::<u32>().unwrap())
        .sum();
    f64::from(ticks) * 10.0
}

fn memory(effort: Effort) -> [Row; 2] {
    let batches: i64 = effort.of(1_000_000, 5_000);
    let cluster = Cluster::start(&["mailroom.batch_limit = 1", "max_wal_size = '16GB'"]);
    let mut client = ground::create_database(&cluster, "app", &[]);
    let worker = cluster.worker("app");
    let row = |part: &str, limit: f64| {
        let name =
            format!("private memory of the worker after {batches} batches / after {part} of them");
        Row::new(name, Unit::Kilobytes).aiming_at(Some(Target::RatioAtMost(limit)))
    };
    let (mut since_tenth, mut since_half) = (row("a tenth", 1.2), row("half", 1.05));
    let mut seen = Vec::new();
    for part in 1..=10 {
        ground::add_accounts(&mut client, batches / 10);
        let done = batches / 10 * part;
        while number(&mut client, "SELECT coalesce(max(id), 0) FROM job_runs") < done {
            std::thread::sleep(Duration::from_millis(200));
        }
        seen.push(private_kilobytes(worker));
    }
    since_tenth.add(seen[9], seen[0]);
    since_half.add(seen[9], seen[4]);
    [since_tenth, since_half]
}

fn private_kilobytes(pid: i32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn stop(effort: Effort) -> Row {
    let mut row = Row::new(
        "pg_ctl stop -m fast under load: with the worker / without the library",
        Unit::Seconds,
    )
    .aiming_at(Some(Target::NeverAbove(3.0)));
    let with = ground::with_workers();
    drop(ground::create_database(&with, "app", &[]));
    let without =
        Cluster::start(&[&ground::SETTINGS[..], &["shared_preload_libraries = ''"]].concat());
    drop(ground::create_plain_database(
        &without,
        "app",
        &[include_str!("bare.sql")],
    ));
    for _ in 0..effort.of(5, 1) {
        let [a, b] = [&with, &without].map(|cluster| {
            let mut load = Load {
                script: include_str!("enqueue.pgbench"),
                clients: 8,
                seconds: 60,
                rate: None,
            }
            .start(cluster, "app");
            std::thread::sleep(Duration::from_secs(effort.of(3, 1)));
            let took = cluster.stop_server(Stop::Fast).as_secs_f64();
            let _ = load.kill();
            let _ = load.wait();
            cluster.start_server();
            took
        });
        row.add(a, b);
    }
    row
}
