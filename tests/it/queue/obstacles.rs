//! What must not keep mail from being claimed: any number of bad rows, a spent budget, a wrong setting, another fallback.

use crate::cluster::{Cluster, eventually, number};
use postgres::Client;

const CLAIM: &str = "SELECT count(*) FROM mailroom_claim(20, '1 h', 'me')";

fn start() -> (Cluster, Client) {
    Cluster::start_with_app(&["shared_preload_libraries = ''"])
}

/// Mails whose rows cannot be changed.
fn send_bad(client: &mut Client, count: i32, group: &str) {
    client
        .batch_execute(&format!(
            "SELECT mailroom_send('a@example.com', repeat('s', 300), 'T', group_key => {group}) FROM generate_series(1, {count})"
        ))
        .unwrap();
}

fn refuse_them(client: &mut Client) {
    let refuses =
        "ALTER TABLE outbox ADD CONSTRAINT short CHECK (char_length(subject) <= 200) NOT VALID";
    client.batch_execute(refuses).unwrap();
}

/// Claims until so many mails came, but not more often than this.
fn claim(client: &mut Client, claim: &str, wanted: i64, limit: usize) {
    let mut got = 0;
    for _ in 0..limit {
        got += number(client, claim);
        if got >= wanted {
            break;
        }
    }
    assert_eq!(got, wanted);
}

#[test]
fn any_number_of_bad_rows_hides_no_other() {
    let (_cluster, mut client) = start();
    send_bad(&mut client, 3_000, "NULL");
    client
        .batch_execute("SELECT mailroom_send('b@example.com', 'S', 'T') FROM generate_series(1, 5)")
        .unwrap();
    refuse_them(&mut client);
    // A claim that finds nothing of another transport changes nothing.
    let other = "SELECT count(*) FROM mailroom_claim(20, '1 h', 'me', '{other}')";
    let both = format!("({CLAIM}) + ({other})");
    claim(&mut client, &both, 5, 6);
    // It goes round: what becomes good is found again.
    client
        .batch_execute(
            "ALTER TABLE outbox DROP CONSTRAINT short; ALTER TABLE outbox ADD CONSTRAINT ten CHECK (id > 10) NOT VALID",
        )
        .unwrap();
    let mut got = 0;
    eventually("the rows that became good", || {
        got += number(&mut client, &CLAIM.replace("20", "500"));
        (got == 2_990).then_some(())
    });
}

#[test]
fn any_number_of_bad_rows_of_a_group_hides_no_other_group() {
    let (_cluster, mut client) = start();
    send_bad(&mut client, 250, "'g'");
    client
        .batch_execute("SELECT mailroom_send('b@example.com', 'S', 'T', group_key => 'h')")
        .unwrap();
    refuse_them(&mut client);
    let claim_group = "SELECT count(*) FROM mailroom_claim_group(10, '1 h', 'me')";
    claim(&mut client, claim_group, 1, 10);
}

#[test]
fn one_at_a_time_the_order_is_the_same() {
    let (_cluster, mut client) = start();
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', priority => -50) FROM generate_series(1, 50); \
             SELECT mailroom_send('a@example.com', 'S', 'T') FROM generate_series(1, 350)",
        )
        .unwrap();
    send_bad(&mut client, 1, "NULL");
    refuse_them(&mut client);
    for id in 1..=120 {
        let one = "SELECT id FROM mailroom_claim(1, '1 h', 'me')";
        assert_eq!(number(&mut client, one), id);
    }
}

#[test]
fn expired_claims_are_taken_back_while_only_urgent_mail_has_a_budget() {
    let (_cluster, mut client) = start();
    client
        .batch_execute(
            "INSERT INTO budgets (period, amount, reserved_share) VALUES ('month', 2, 0.5); \
             SELECT mailroom_send('a@example.com', 'S', 'T', priority => -50); \
             SELECT mailroom_claim(1, '1 ms', 'crashed'); \
             SELECT mailroom_send('a@example.com', 'S', 'T') FROM generate_series(1, 30); \
             SELECT pg_sleep(0.01)",
        )
        .unwrap();
    let urgent = "SELECT count(*) FROM mailroom_claim(30, '1 h', 'me') WHERE priority = -50";
    assert_eq!(number(&mut client, urgent), 1);
}

#[test]
fn a_wrong_redirect_takes_nothing_from_the_budgets() {
    let (_cluster, mut client) = start();
    client
        .batch_execute(
            "INSERT INTO budgets (period, amount) VALUES ('month', 100); \
             SELECT mailroom_send('a@example.com', 'S', 'T') FROM generate_series(1, 30); \
             SET mailroom.redirect_to = 'Developer'; SET search_path = pg_catalog, public, pg_temp",
        )
        .unwrap();
    let none: Option<&[&str]> = None;
    let claim = include_str!("../../../sql/queries/claim_mail.sql");
    for _ in 0..3 {
        client
            .query(claim, &[&20_i32, &"me", &none, &60_f64])
            .unwrap_err();
    }
    let spent = "SELECT spent::bigint FROM mailroom_budgets";
    assert_eq!(number(&mut client, spent), 0);
}

#[test]
fn two_fallbacks_of_one_transport_both_get_their_mail() {
    let (_cluster, mut client) = start();
    client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) \
             VALUES (1, 'c%', 'first', 'other', '0 s'), (2, 'b%', 'first', 'main', '0 s'); \
             INSERT INTO outbox (kind, recipients, subject, body_text, transport) \
             SELECT 'c', '{a@example.com}', 'S', 'T', 'first' FROM generate_series(1, 1256); \
             INSERT INTO outbox (kind, recipients, subject, body_text, transport) \
             SELECT 'b', '{a@example.com}', 'S', 'T', 'first' FROM generate_series(1, 1000)",
        )
        .unwrap();
    for _ in 0..4 {
        for to in ["main", "other"] {
            let fall_back = format!("SELECT _fall_back('{to}', '{{first}}', '{{1 h}}', 128)");
            number(&mut client, &fall_back);
        }
    }
    for to in ["main", "other"] {
        let there = format!("SELECT count(*) FROM outbox WHERE transport = '{to}'");
        assert!(number(&mut client, &there) >= 128, "to {to}");
    }
}

#[test]
fn a_role_that_supports_and_collects_retries_what_it_may() {
    let (cluster, mut client) = start();
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
             SELECT mailroom_collect(), mailroom_send('b@example.com', 'S', 'T'); \
             SELECT mailroom_mark_error_many(array_agg(c.id), array_agg('no'::text), permanent => array_agg(true), claimant => 'me') \
             FROM mailroom_claim(10, '1 h', 'me') c; \
             CREATE ROLE ops LOGIN IN ROLE mailroom_support, mailroom_collector",
        )
        .unwrap();
    let mut ops = cluster.connect_as("app", "ops");
    let retry = "SELECT mailroom_retry_failed(since => now() - interval '1 day')::bigint";
    assert_eq!(number(&mut ops, retry), 1);
    let token = "SELECT mailroom_retry(id) FROM outbox WHERE kind = 'activation'";
    let error = ops.batch_execute(token).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.message(), "permission denied to sign token mail");
}
