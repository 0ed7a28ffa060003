//! The invariants I4, I5, I6 and I9, by what the server itself reports of sessions, locks, statements and pages. The
//! tests of the others carry their numbers. `jit` is about plans.

mod i4;
mod i5;
mod i6;
mod i9;
mod jit;
mod plans;
mod upkeep;

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use crate::cluster::{Cluster, eventually_or_tell, number};
use postgres::Client;

/// The number of pages that a statement accesses.
fn pages(client: &mut Client, statement: &str) -> u64 {
    crate::volume::pages(client, statement).unwrap()
}

/// The steps of a round with batches of 100, in an order that leaves no rows.
const STEPS: [(&str, &str); 4] = [
    ("collect", "SELECT mailroom_collect(100)"),
    (
        "claim",
        "CREATE TEMP TABLE held AS SELECT id FROM mailroom_claim(100, '1 h', 'me')",
    ),
    (
        "settle",
        "SELECT mailroom_mark_sent_many(array_agg(id), NULL, 'me') FROM held",
    ),
    ("dequeue", "SELECT count(*) FROM mailroom_dequeue(100)"),
];

/// The pages that each step accessed, in each of `rounds` rounds.
fn rounds(client: &mut Client, prefix: &str, rounds: usize) -> Vec<BTreeMap<&'static str, u64>> {
    (0..rounds)
        .map(|round| {
            client
                .execute(
                    "INSERT INTO accounts (email, login) \
                     SELECT $1 || i || '@example.com', $1 || i FROM generate_series(1, 200) i",
                    &[&format!("{prefix}{round}-")],
                )
                .unwrap();
            let costs = STEPS
                .iter()
                .map(|(name, statement)| (*name, pages(client, statement)))
                .collect();
            client.batch_execute("DROP TABLE held").unwrap();
            costs
        })
        .collect()
}

/// A session whose snapshot keeps what is deleted in this table.
fn hold_snapshot(cluster: &Cluster, table: &str) -> Client {
    let mut holder = cluster.connect("app");
    holder
        .batch_execute(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM {table}"
        ))
        .unwrap();
    holder
}

/// A database without a worker and without autovacuum.
fn untidied() -> (Cluster, Client) {
    let (cluster, mut client) =
        Cluster::start_with_app(&["shared_preload_libraries = ''", "autovacuum = off"]);
    client
        .batch_execute("SET client_min_messages = error; SET jit = off")
        .unwrap();
    (cluster, client)
}

/// The result of a statement while another session waits and holds the lock of NOTIFY.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Returned,
    WaitsForTheLock,
}

/// The lock that a transaction with a NOTIFY holds during its commit, one at a time in the whole cluster.
const NOTIFY_LOCK: &str =
    "locktype = 'object' AND database = 0 AND objid = 0 AND classid = 'pg_database'::regclass";

/// Runs a statement in a session that waits for no standby; if it has to wait, the thread continues it.
fn outcome(cluster: &Cluster, observer: &mut Client, statement: &str) -> (Outcome, JoinHandle<()>) {
    let mut session = cluster.connect("app");
    session
        .batch_execute("SET synchronous_commit = local")
        .unwrap();
    let pid = number(&mut session, "SELECT pg_backend_pid()");
    let text = statement.to_owned();
    let thread = std::thread::spawn(move || {
        session
            .batch_execute(&text)
            .unwrap_or_else(|error| panic!("{text}: {error:?}"));
    });
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE pid = {pid} AND NOT granted AND {NOTIFY_LOCK}"
    );
    let outcome = eventually_or_tell(statement, || {
        if thread.is_finished() {
            Ok(Outcome::Returned)
        } else if number(observer, &waits) == 1 {
            Ok(Outcome::WaitsForTheLock)
        } else {
            observer
                .query_one(
                    "SELECT concat_ws(' ', state, wait_event_type, wait_event) FROM pg_stat_activity WHERE pid::bigint = $1",
                    &[&pid],
                )
                .map_or_else(
                    |error| Err(error.to_string()),
                    |row| Err(row.get::<_, String>(0)),
                )
        }
    });
    (outcome, thread)
}
