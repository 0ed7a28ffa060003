//! Whether history costs: a batch of 100 in databases that differ in what they have already handed out.
//!
//! A batch is timed without its commit, which would cover up a difference. The databases take turns every
//! few batches, so that other load of the machine affects all of them.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::cluster::Cluster;
use crate::ground;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};

const BATCH: i32 = 100;
/// Batches of one database before it is the next one's turn.
const TURN: u32 = 10;
/// How much history is made at a time.
const CHUNK: i64 = 50_000;

/// The rows of flatness: some history, and much of it, against none.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::without_workers();
    let (some, much) = effort.of((100_000, 1_000_000), (2_000, 20_000));
    let mut clients = [0, some, much].map(|history| with_history(&cluster, history));
    let name = |history: i64| {
        format!("batch of {BATCH}, without commit: {history} tokens of history / none")
    };
    let mut rows = [
        Row::new(name(some), Unit::Millis),
        Row::new(name(much), Unit::Millis).aiming_at(Some(Target::RatioAtMost(1.1))),
    ];
    let turns = effort.of(20, 3);
    for _ in 0..effort.of(9, 1) {
        // The database without history loses what the round before has made.
        clients[0]
            .batch_execute("TRUNCATE accounts, tokens, pending, outbox")
            .unwrap();
        for client in &mut clients {
            ground::add_accounts(
                client,
                i64::from(turns + 2) * i64::from(TURN) * i64::from(BATCH),
            );
            ground::vacuum(client);
        }
        let [none, some, much] = take_turns(&mut clients, turns);
        rows[0].add(some, none);
        rows[1].add(much, none);
    }
    rows.into()
}

/// A database in which so many tokens were handed out and their mails sent.
fn with_history(cluster: &Cluster, history: i64) -> Client {
    eprintln!("   making {history} tokens of history");
    let mut client = ground::create_database(cluster, &format!("history_{history}"), &[]);
    let mut left = history;
    while left > 0 {
        let chunk = left.min(CHUNK);
        ground::add_accounts(&mut client, chunk);
        let size = i32::try_from(chunk).unwrap();
        let collected: i32 = client
            .query_one("SELECT mailroom_collect($1)", &[&size])
            .unwrap()
            .get(0);
        assert_eq!(collected, size);
        ground::settle(&mut client);
        ground::vacuum(&mut client);
        left -= chunk;
    }
    client
}

/// Milliseconds a batch in each database.
fn take_turns(clients: &mut [Client; 3], turns: u32) -> [f64; 3] {
    for client in clients.iter_mut() {
        for _ in 0..2 * TURN {
            batch(client);
        }
    }
    let mut total = [Duration::ZERO; 3];
    for _ in 0..turns {
        for (client, total) in clients.iter_mut().zip(&mut total) {
            *total += (0..TURN).map(|_| batch(client)).sum::<Duration>();
        }
    }
    total.map(|total| total.as_secs_f64() * 1_000.0 / f64::from(turns * TURN))
}

/// Takes a batch; returns how long the statement took.
fn batch(client: &mut Client) -> Duration {
    let mut transaction = client.transaction().unwrap();
    let statement = transaction.prepare("SELECT mailroom_collect($1)").unwrap();
    let begin = Instant::now();
    let collected: i32 = transaction.query_one(&statement, &[&BATCH]).unwrap().get(0);
    let duration = begin.elapsed();
    transaction.commit().unwrap();
    assert_eq!(collected, BATCH);
    duration
}
