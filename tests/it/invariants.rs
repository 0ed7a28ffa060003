//! Invariants of the design that no other test shows by what the server itself says of sessions, locks, statements and
//! pages: I4, I5, I6 and I9. The others carry their numbers where they are tested. `jit` is about their plans.

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

/// Pages that a statement looks at.
fn pages(client: &mut Client, statement: &str) -> u64 {
    crate::volume::pages(client, statement).unwrap()
}

/// What is done with a batch of a hundred, in an order that leaves nothing over.
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

/// Pages that each step took, in each of so many rounds.
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

/// A database without a worker, and nothing that would tidy up.
fn untidied() -> (Cluster, Client) {
    let (cluster, mut client) =
        Cluster::start_with_app(&["shared_preload_libraries = ''", "autovacuum = off"]);
    client
        .batch_execute("SET client_min_messages = error; SET jit = off")
        .unwrap();
    (cluster, client)
}

/// What becomes of a statement while another session holds the lock of NOTIFY and waits.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Returned,
    WaitsForTheLock,
}

/// The lock that each transaction with a NOTIFY takes for its commit, one after the other in the whole cluster.
const NOTIFY_LOCK: &str =
    "locktype = 'object' AND database = 0 AND objid = 0 AND classid = 'pg_database'::regclass";

/// Runs a statement in a session of its own that waits for no standby; the session comes along if it waits.
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
