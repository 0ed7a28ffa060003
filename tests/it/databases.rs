//! A worker in each database that has the extension, which does not obstruct other sessions.

mod closed;
mod extension;
mod limits;
mod names;

use std::collections::BTreeSet;

use crate::cluster::{eventually, number};
use postgres::Client;

/// Returns the databases that have a worker.
fn served(client: &mut Client) -> BTreeSet<String> {
    client
        .query(
            "SELECT datname::text FROM pg_stat_activity \
             WHERE backend_type = 'mailroom worker' AND datname IS NOT NULL",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Waits until exactly these databases have a worker.
fn wait_for_workers(client: &mut Client, databases: &[&str]) {
    let expected: BTreeSet<String> = databases.iter().map(|&name| name.to_owned()).collect();
    eventually(&format!("workers in {databases:?}"), || {
        (served(client) == expected).then_some(())
    });
}

/// Inserts one account and waits for its mail.
fn expect_mail(client: &mut Client, name: &str) {
    let before = number(client, "SELECT count(*) FROM outbox");
    client
        .execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[&name],
        )
        .unwrap();
    eventually("its mail", || {
        (number(client, "SELECT count(*) FROM outbox") == before + 1).then_some(())
    });
}

const AT_ONCE: &[&str] = &["mailroom.batch_limit = 1"];
