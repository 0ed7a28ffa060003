//! What the statements of the page read in a large database whose statistics are stale, and what they find there.

use postgres::Client;
use serde_json::Value;

use crate::cluster::Cluster;

use super::matrix::STATEMENTS;
use super::{QUIET, create_roles, rows, run};

/// Ended and waiting mail of the large database: more waits, and more has failed, than a statement may read.
const ENDED: i64 = 200_000;
const WAITING: i64 = 30_000;
/// What a statement may read of outbox: 20,000 rows that it searches, and those that it shows, which it reads again.
const MOST: f64 = 20_200.0;

/// A database whose statistics are of forty mails.
fn fill(client: &mut Client) {
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, state, transport, ended_at, last_error) \
             SELECT 'digest', ARRAY['x@example.com'], 'S', 'T', s.state::outbox_state, 'smtp', \
                 CASE WHEN s.state <> 'scheduled' THEN now() END, CASE WHEN s.state = 'error' THEN 'no' END \
             FROM generate_series(1, 10) i CROSS JOIN unnest(ARRAY['sent', 'error', 'scheduled', 'scheduled']) s (state); \
             ANALYZE; DELETE FROM outbox; ALTER SEQUENCE outbox_id_seq RESTART; \
             INSERT INTO accounts (email, login) VALUES ('ann@example.com', 'ann'); SELECT mailroom_collect(10)",
        )
        .unwrap();
    let ended = format!(
        "INSERT INTO outbox (kind, recipients, cc, subject, body_text, state, transport, created_at, ended_at, last_error, failed_attempts, \
             provider_id, item_key) \
         SELECT (ARRAY['invoice', 'receipt', 'digest'])[1 + i % 3], ARRAY['User <u' || i % 5000 || '@Example.com>'], \
             CASE WHEN i % 10 = 0 THEN ARRAY['ops@example.com'] ELSE '{{}}' END, 'Mail ' || i, 'Text', \
             (CASE WHEN i % 6 = 0 THEN 'error' ELSE 'sent' END)::outbox_state, CASE WHEN i % 5 = 0 THEN 'ses' ELSE 'smtp' END, \
             t.at, t.at, CASE WHEN i % 6 = 0 THEN 'smtp 550' END, (i % 6 = 0)::integer, 'provider-' || i, 'order-' || i \
         FROM generate_series(1, {ENDED}) i CROSS JOIN LATERAL (SELECT now() - ({ENDED} - i) * interval '1 s') t (at); \
         INSERT INTO outbox_attempts (outbox_id, attempt, outcome, ended_at, transport, response_code, error) \
         SELECT o.id, 1, 'failed', o.ended_at, o.transport, 550, 'smtp 550' FROM outbox o WHERE o.state = 'error'; \
         INSERT INTO delivery_events (event_key, outbox_id, transport, type, occurred_at) \
         SELECT gen_random_uuid(), o.id, o.transport, 'delivered', o.ended_at FROM outbox o WHERE o.state = 'sent' AND o.id % 20 = 0; \
         INSERT INTO outbox (kind, recipients, subject, body_text, transport, send_at, priority) \
         SELECT 'digest', ARRAY['w' || i || '@example.com'], 'Waiting', 'T', 'smtp', now() + (i % 2 - 0.5) * interval '1 day', i % 3 \
         FROM generate_series(1, {WAITING}) i"
    );
    client.batch_execute(&ended).unwrap();
}

/// The ids of a list, without the row that only tells where to go on.
fn ids(client: &mut Client, name: &str, arguments: &str) -> Vec<i64> {
    let rows = rows(client, name, &format!("{arguments}, 51"));
    rows.iter()
        .filter_map(|row| row.get("id"))
        .map(|id| id.parse().unwrap())
        .collect()
}

/// How many rows of outbox the nodes of a plan have read; a Seq Scan of it fails the test.
fn looked_at(plan: &Value, call: &str) -> f64 {
    let figure = |name: &str| plan[name].as_f64().unwrap_or(0.0);
    let mut rows = 0.0;
    if plan["Relation Name"] == "outbox" {
        assert_ne!(plan["Node Type"], "Seq Scan", "{call}: {plan:#}");
        rows = (figure("Actual Rows")
            + figure("Rows Removed by Filter")
            + figure("Rows Removed by Index Recheck"))
            * figure("Actual Loops");
    }
    let inner = plan["Plans"].as_array().into_iter().flatten();
    rows + inner.map(|plan| looked_at(plan, call)).sum::<f64>()
}

#[test]
fn no_statement_of_the_page_reads_more_than_20_000_mails() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    create_roles(&mut client);
    fill(&mut client);
    let mut admin = cluster.connect_as("app", "page_admin");
    for statistics in [
        "SELECT 'of forty mails'",
        "DELETE FROM pg_statistic WHERE starelid = 'outbox'::regclass",
        "ANALYZE",
    ] {
        client.batch_execute(statistics).unwrap();
        for (name, _, calls) in STATEMENTS
            .iter()
            .filter(|(name, ..)| !name.starts_with("act_"))
        {
            for call in *calls {
                let plan = run(&mut admin, name, call, "EXPLAIN (ANALYZE, FORMAT JSON)").unwrap();
                let plan: Value = serde_json::from_str(plan[0].get(0).unwrap()).unwrap();
                let call = format!("after {statistics}, {name}({call})");
                let looked = looked_at(&plan[0]["Plan"], &call);
                assert!(looked <= MOST, "{call} read {looked} rows: {plan:#}");
            }
        }
    }
    searches_find_what_is_there(&mut client, &mut admin);
}

/// In the same large database, which takes seconds to fill.
fn searches_find_what_is_there(client: &mut Client, support: &mut Client) {
    // Ended, waiting and with a link.
    let send =
        "SELECT mailroom_send('Ann Lee <Ann@Example.com>', 'Hello', 'T', item_key => 'order-ann')";
    let sent: i64 = client.query_one(send, &[]).unwrap().get(0);
    let ended = "INSERT INTO outbox (kind, recipients, bcc, subject, body_text, state, ended_at, transport) \
         VALUES ('note', '{bob@example.com}', '{ANN@example.com}', 'S', 'T', 'sent', now(), '') RETURNING id";
    let ended: i64 = client.query_one(ended, &[]).unwrap().get(0);
    let link: i64 = client
        .query_one("SELECT id FROM outbox WHERE token_id IS NOT NULL", &[])
        .unwrap()
        .get(0);
    assert_eq!(
        ids(support, "messages_by_address", "'ann@example.com', NULL"),
        [ended, sent, link]
    );
    assert_eq!(
        ids(
            support,
            "messages_by_address",
            &format!("'ann@example.com', {sent}")
        ),
        [link]
    );
    assert_eq!(ids(support, "messages_by_key", "'order-ann', NULL"), [sent]);
    assert_eq!(
        ids(support, "messages_by_key", &format!("'{sent}', NULL")),
        [sent]
    );
    let answer = rows(support, "answer", &format!("'ANN@example.com', {link}"));
    assert_eq!(answer[0].get("account_status"), Some("provisioned"));
    assert_eq!(
        (answer[0].get("open_links"), answer[0].get("link_used_at")),
        (Some("{activation}"), None)
    );
    // Another account's address does not turn up, and the newest 50 of many are a page.
    assert_eq!(
        ids(support, "messages_by_address", "'u77@example.com', NULL").len(),
        40
    );
    assert_eq!(
        ids(support, "messages_by_address", "'ops@example.com', 200000").len(),
        51
    );
    // A filter goes back in steps, to the first mail.
    client
        .batch_execute("UPDATE outbox SET state = 'cancelled' WHERE id = 1500")
        .unwrap();
    let mut before = "NULL".to_owned();
    let mut found = Vec::new();
    let mut steps = 0;
    while steps < 100 {
        steps += 1;
        let call = format!("{before}, 'cancelled', NULL, NULL");
        found.extend(ids(support, "messages", &call));
        let Some(next) = rows(support, "messages", &format!("{call}, 51"))[0]
            .get("next_before")
            .map(str::to_owned)
        else {
            break;
        };
        before = next;
    }
    assert_eq!((found, steps), (vec![1500], 1 + (ENDED + WAITING) / 20_000));
}

/// Statistics from before the first failure: a search for later mail of an item must not read all that failed.
#[test]
fn a_retry_of_many_is_counted_with_statistics_of_no_error() {
    let (_cluster, mut client) = Cluster::start_with_app(QUIET);
    create_roles(&mut client);
    let fill = "INSERT INTO outbox (kind, recipients, subject, body_text) \
             SELECT 'digest', '{x@example.com}', 'S', 'T' FROM generate_series(1, 1000); \
         ANALYZE; DELETE FROM outbox; \
         INSERT INTO outbox (kind, recipients, subject, body_text, state, ended_at, last_error, failed_attempts, item_key) \
             SELECT 'digest', '{x@example.com}', 'S', 'T', 'error', now(), 'no', 1, 'order-' || i FROM generate_series(1, 3000) i";
    client.batch_execute(fill).unwrap();
    let call = "'digest', NULL, NULL, NULL, '1 day'";
    let explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)";
    let plan = run(&mut client, "retryable", call, explain).unwrap();
    let plan: Value = serde_json::from_str(plan[0].get(0).unwrap()).unwrap();
    let pages = ["Shared Hit Blocks", "Shared Read Blocks"]
        .map(|name| plan[0]["Plan"][name].as_f64().unwrap());
    // Some for each mail; with a search of all that failed, hundreds.
    assert!(pages.iter().sum::<f64>() < 60_000.0, "{plan:#}");
}
