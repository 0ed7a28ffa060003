//! The servers, databases and accounts that the benchmarks stand on.

use std::time::Duration;

use postgres::Client;

use crate::cluster::{self, Cluster};

/// Commits are durable, and no checkpoint falls into a measurement. Tokens outlive the longest run.
pub const SETTINGS: [&str; 8] = [
    "fsync = on",
    "synchronous_commit = on",
    "shared_buffers = 1GB",
    "max_wal_size = 16GB",
    "checkpoint_timeout = '1h'",
    "max_connections = 100",
    "max_worker_processes = 32",
    "mailroom.recovery_ttl = '1d'",
];

/// The settings that are printed above the table.
const SHOWN: [&str; 6] = [
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
];

/// A cluster in which each database with the extension has a worker.
pub fn with_workers() -> Cluster {
    Cluster::start(&SETTINGS)
}

/// A cluster without the library preloaded, so without workers, and without autovacuum; VACUUM runs between the
/// measurements.
pub fn without_workers() -> Cluster {
    let mut settings = SETTINGS.to_vec();
    settings.extend(["shared_preload_libraries = ''", "autovacuum = off"]);
    Cluster::start(&settings)
}

/// Makes a database with settings of its own and the extension in it, in this order: a worker reads its
/// settings when it starts.
pub fn create_database(cluster: &Cluster, name: &str, settings: &[&str]) -> Client {
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .unwrap();
    for setting in settings {
        client
            .batch_execute(&format!("ALTER DATABASE {name} SET {setting}"))
            .unwrap();
    }
    let mut client = cluster.connect(name);
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    client
}

/// Makes a database without the extension, from these scripts.
pub fn create_plain_database(cluster: &Cluster, name: &str, scripts: &[&str]) -> Client {
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .unwrap();
    let mut client = cluster.connect(name);
    for script in scripts {
        client.batch_execute(script).unwrap();
    }
    client
}

/// Adds provisioned accounts, and with them tokens that wait.
pub fn add_accounts(client: &mut Client, count: i64) {
    let statement = include_str!("add_accounts.sql");
    assert_eq!(
        client.execute(statement, &[&count]).unwrap(),
        count.unsigned_abs()
    );
}

/// What a sender leaves behind: every mail that waits is claimed and sent.
pub fn settle(client: &mut Client) {
    let batch = "SELECT count(mailroom_mark_sent_many(ids)) FROM \
                 (SELECT array_agg(id) FROM mailroom_claim(10000)) c (ids) WHERE ids IS NOT NULL";
    while cluster::number(client, batch) > 0 {}
}

/// What autovacuum would have done by now.
pub fn vacuum(client: &mut Client) {
    client
        .batch_execute("VACUUM (ANALYZE) accounts, tokens, pending, outbox, jobs")
        .unwrap();
}

/// Waits until the worker has taken all that waits, but for what does not fill a batch.
pub fn wait_until_drained(client: &mut Client) {
    cluster::eventually("the worker to take what waits", || {
        std::thread::sleep(Duration::from_millis(50));
        (cluster::number(client, "SELECT count(*) FROM pending") < 100).then_some(())
    });
}

/// How busy the machine is: others at work on it are noise in the figures.
pub fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// The server and its settings.
pub fn describe() -> String {
    let cluster = with_workers();
    let mut client = cluster.connect("postgres");
    let mut show = |name: &str| -> String {
        client
            .query_one(&format!("SHOW {name}"), &[])
            .unwrap()
            .get(0)
    };
    let version = show("server_version");
    let settings: Vec<String> = SHOWN
        .iter()
        .map(|name| format!("{name}={}", show(name)))
        .collect();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "PostgreSQL {version}, {cores} cores, {}",
        settings.join(" ")
    )
}
