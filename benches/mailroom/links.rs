//! Whether the time of an answer tells why a link is no good, or how much of a forged one was right.
//!
//! No other process is active: no worker, no autovacuum.

use std::cell::RefCell;

use postgres::Client;

use crate::alike::{self, Kind};
use crate::ground;
use crate::plan::Effort;
use crate::table::Row;

/// Accounts, each with a link.
const ACCOUNTS: usize = 30_000;

/// The rows of links: redeeming invalid links, and verifying forged ones. The function is long because it has one block
/// for each kind of link.
pub fn measure(effort: Effort) -> Vec<Row> {
    let limit = effort.of(None, Some(100));
    let cluster = ground::without_workers();
    let mut client = ground::create_database(&cluster, "links", &[]);
    client
        .batch_execute(&format!(
            "INSERT INTO accounts (email, login, status) \
             SELECT i || '@example.com', i, 'active' FROM generate_series(1, {ACCOUNTS}) i; \
             INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts; \
             TRUNCATE pending"
        ))
        .unwrap();
    client
        .batch_execute(
            "UPDATE tokens SET consumed_at = created_at + 1 WHERE id % 6 = 0; \
             UPDATE tokens SET created_at = 1, expires_at = 2 WHERE id % 6 = 1; \
             UPDATE tokens SET revoked_at = created_at + 1 WHERE id % 6 = 2; \
             UPDATE accounts SET status = 'suspended' WHERE id IN (SELECT account FROM tokens WHERE id % 6 = 3); \
             UPDATE tokens SET revoked_at = NULL WHERE id % 6 = 3",
        )
        .unwrap();
    for table in ["tokens", "accounts"] {
        client
            .batch_execute(&format!("VACUUM (FULL, ANALYZE) {table}"))
            .unwrap();
    }
    let forge = "overlay(mailroom_sign(action, secret, code) PLACING \
        CASE substr(mailroom_sign(action, secret, code), 60, 1) WHEN 'A' THEN 'B' ELSE 'A' END FROM 60)";
    let unknown = "mailroom_sign(action, sha256(secret), code)";
    let good = "mailroom_sign(action, secret, code)";
    let samples = [
        ("unknown", unknown, 4),
        ("forged", forge, 4),
        ("used", good, 0),
        ("expired", good, 1),
        ("revoked", good, 2),
        ("of a suspended account", good, 3),
    ]
    .map(|(name, link, rest)| {
        let links = strings(
            &mut client,
            &format!("SELECT {link}, code FROM tokens WHERE id % 6 = {rest} ORDER BY hashint8(id)"),
        );
        (name, links)
    });
    let mut rows = compare(
        cluster.connect("links"),
        "redeem",
        "SELECT outcome FROM mailroom_redeem($1, $2)",
        limit,
        &samples,
    );

    let samples = [
        ("good", None),
        ("wrong at 0", Some(0)),
        ("wrong at 16", Some(16)),
        ("wrong at 31", Some(31)),
    ]
    .map(|(name, wrong)| {
        // A byte of the MAC, which is what the digits of base64 do not show.
        let raw =
            "decode(translate(mailroom_sign(action, secret, code), '-_', '+/') || '==', 'base64')";
        let bytes = wrong.map_or_else(
            || raw.to_owned(),
            |byte| {
                format!(
                    "set_byte({raw}, {0}, 255 - get_byte({raw}, {0}))",
                    32 + byte
                )
            },
        );
        let links = strings(
            &mut client,
            &format!(
                "SELECT translate(encode({bytes}, 'base64'), E'+/=\\n', '-_'), code \
                     FROM tokens ORDER BY hashint8(id)"
            ),
        );
        (name, links)
    });
    rows.extend(compare(
        cluster.connect("links"),
        "verify",
        "SELECT mailroom_verify($1, 'password_recovery', $2)",
        limit,
        &samples,
    ));
    rows
}

/// Links and their codes.
fn strings(client: &mut Client, query: &str) -> Vec<(String, String)> {
    client
        .query(query, &[])
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

fn compare(
    client: Client,
    subject: &str,
    statement: &str,
    limit: Option<usize>,
    samples: &[(&str, Vec<(String, String)>)],
) -> Vec<Row> {
    let client = RefCell::new(client);
    let statement = client.borrow_mut().prepare(statement).unwrap();
    let call = |(token, code): &(String, String)| {
        client
            .borrow_mut()
            .query_one(&statement, &[token, code])
            .unwrap();
    };
    for (_, links) in samples {
        links.iter().take(100).for_each(call);
    }
    let mut kinds: Vec<Kind<'_>> = samples
        .iter()
        .map(|(name, links)| Kind {
            name,
            call: Box::new(move |number| call(&links[number % links.len()])),
        })
        .collect();
    alike::compare(subject, limit, &mut kinds)
}
