//! Each operation in a database with much in it against one with a hundredth of that: in pages looked at, in time, and in
//! time through a pooler in transaction mode; and in the large one while a snapshot is held for ten minutes and the worker
//! delivers with leases of a second, in the last minute against the first.
//!
//! A round is the median of some calls, each in a transaction that is rolled back, so that both databases stay as they
//! are; what prepares a call, and the end of the transaction, does not count. An index of a hundred times as many entries
//! has a level more, which is a page for each look into it, and that is in the figures.
//!
//! Through the pooler each transaction comes to another of four sessions: what one of them remembers of the queue, it
//! remembers of its own calls.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::cluster::{Cluster, number};
use crate::ground;
use crate::plan::Effort;
use crate::pooler::Pooler;
use crate::post;
use crate::receiver::{Receiver, status};
use crate::table::{Row, Target, Unit, percentile};
use crate::turns::in_turn;
use crate::volume::{self, OPERATIONS, fill, once, once_for_good};

const NAMES: [&str; 2] = ["large", "small"];
/// Of how many calls a round is the median.
const CALLS: usize = 5;

/// The rows of scale.
pub fn measure(effort: Effort) -> Vec<Row> {
    let receiver = Receiver::start(|_| status(200));
    let cluster = start(&receiver);
    let accounts = effort.of([1_000_000, 10_000], [40_000, 2_000]);
    for (name, accounts) in NAMES.into_iter().zip(accounts) {
        let begin = Instant::now();
        let mut client = ground::create_database(&cluster, name, &[]);
        client.batch_execute("SELECT mailroom_pause()").unwrap();
        fill(&mut client, accounts);
        eprintln!(
            "   {name}: {accounts} accounts, made in {:.0} s",
            begin.elapsed().as_secs_f64()
        );
    }
    let mut rows = Vec::new();
    let mut clients = NAMES.map(|name| cluster.connect(name));
    rows.extend(compare(effort, "pages", &mut clients, pages));
    rows.extend(compare(effort, "time", &mut clients, time));
    drop(clients);
    let pooler = Pooler::start(&cluster, "postgres");
    let mut clients = NAMES.map(|name| pooler.connect(name));
    rows.extend(compare(effort, "time, pooled", &mut clients, time));
    drop((clients, pooler));
    rows.extend(under_snapshot(effort, &cluster));
    rows
}

/// Workers deliver to the receiver once they are told to. Slow statements are logged.
fn start(receiver: &Receiver) -> Cluster {
    let mut settings = ground::SETTINGS.to_vec();
    settings.extend([
        "shared_preload_libraries = 'mailroom, auto_explain'",
        "auto_explain.log_min_duration = '20ms'",
        "auto_explain.log_nested_statements = on",
        "max_wal_size = 4GB",
        "autovacuum = off",
        "jit = off",
        "mailroom.lease = '1s'",
        "transport.rate = 500 messages/s",
        // The worker has nothing to purge, which would be in no turn.
        "mailroom.retention = '60d'",
    ]);
    post::start_cluster(&receiver.endpoint(), &settings).0
}

/// A row for each operation: the large database against the small one.
fn compare(
    effort: Effort,
    what: &str,
    clients: &mut [Client; 2],
    measure: fn(&mut Client, &str) -> Result<f64, postgres::Error>,
) -> Vec<Row> {
    let (unit, most) = match what {
        "pages" => (Unit::Count, 1.2),
        _ => (Unit::Millis, 1.5),
    };
    let mut rows: Vec<Row> = OPERATIONS
        .iter()
        .map(|operation| {
            Row::new(format!("{}, {what}: large / small", operation.name), unit)
                .aiming_at(Some(Target::RatioAtMost(most)))
        })
        .collect();
    for round in 0..effort.of(10, 2) {
        for (number, row) in rows.iter_mut().enumerate() {
            let [large, small] = in_turn::<_, 2>(round, |which| {
                let mut calls = [(); CALLS].map(|()| once(&mut clients[which], number, measure));
                calls.sort_by(f64::total_cmp);
                percentile(&calls, 0.5)
            });
            // The first round fills caches and makes plans.
            if round > 0 {
                row.add(large, small);
            }
        }
    }
    rows
}

fn pages(client: &mut Client, statement: &str) -> Result<f64, postgres::Error> {
    volume::pages(client, statement).map(|pages| pages as f64)
}

/// Milliseconds. By the protocol for simple queries, which any pooler passes on.
fn time(client: &mut Client, statement: &str) -> Result<f64, postgres::Error> {
    let begin = Instant::now();
    client.batch_execute(statement)?;
    Ok(begin.elapsed().as_secs_f64() * 1_000.0)
}

/// The large database while its worker delivers and another session holds a snapshot: the last minute against the first.
/// The function is long because the steps of the measurement share its variables.
fn under_snapshot(effort: Effort, cluster: &Cluster) -> Vec<Row> {
    let (length, window) = effort.of((600, 60), (12, 4));
    eprintln!("   a snapshot is held for {length} s");
    let mut client = cluster.connect(NAMES[0]);
    let mut holder = cluster.connect(NAMES[0]);
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox LIMIT 1")
        .unwrap();
    let sent =
        "SELECT count(*) FROM outbox WHERE state = 'sent' AND ended_at > now() - interval '1 hour'";
    let before = number(&mut client, sent);
    let logged = cluster.log().len();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    let begin = Instant::now();
    // What each operation took in the first and in the last minute.
    let mut times = vec![[const { Vec::new() }; 2]; OPERATIONS.len()];
    while begin.elapsed() < Duration::from_secs(length) {
        let second = begin.elapsed().as_secs();
        let part = match second {
            // Its sessions and plans are new.
            0..2 => None,
            _ if second < window + 2 => Some(0),
            _ if second >= length - window => Some(1),
            _ => None,
        };
        for (number, times) in times.iter_mut().enumerate() {
            if OPERATIONS[number].name == "pause" || OPERATIONS[number].name == "resume" {
                // The worker's own look for a pause would wait for these.
                continue;
            }
            let took = once_for_good(&mut client, number, time);
            if let Some(part) = part {
                times[part].push(took);
            }
        }
        std::thread::sleep(Duration::from_secs(2));
    }
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    eprintln!(
        "   {} mails were sent meanwhile",
        number(&mut client, sent) - before
    );
    holder.batch_execute("ROLLBACK").unwrap();
    let mut rows = Vec::new();
    for (operation, times) in OPERATIONS.iter().zip(times) {
        if times[0].is_empty() {
            continue;
        }
        let name = format!(
            "{}, snapshot held {length} s: last {window} s / first",
            operation.name
        );
        let mut row = Row::new(name, Unit::Millis).aiming_at(Some(Target::RatioAtMost(1.5)));
        let [first, last] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            percentile(&times, 0.5)
        });
        row.add(last, first);
        rows.push(row);
    }
    let mut longest = Row::new(
        "the worker's longest statement meanwhile / 100 ms",
        Unit::Millis,
    )
    .against(100.0)
    .aiming_at(Some(Target::NeverAbove(100.0)));
    longest.add_one(longest_of_worker(&cluster.log()[logged..]));
    rows.push(longest);
    rows
}

/// Milliseconds of the longest statement of a worker that the log tells of, which is shown; those below 20 ms are not in it.
fn longest_of_worker(log: &str) -> f64 {
    let mut longest = 20.0;
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let duration = line
            .contains(" mailroom worker ")
            .then(|| line.split_once("duration: "))
            .flatten()
            .and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        if let Some(took) = duration.filter(|took| *took > longest) {
            longest = took;
            let mut statement = String::new();
            while let Some(part) = lines.next_if(|part| part.starts_with('\t')) {
                statement.push_str(part.trim());
                statement.push(' ');
            }
            let statement: String = statement.chars().take(400).collect();
            eprintln!("   the worker, {took} ms: {statement}");
        }
    }
    longest
}
