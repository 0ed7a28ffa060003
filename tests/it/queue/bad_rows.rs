//! Rows whose change a constraint or a trigger of the application refuses.

use crate::cluster::{Cluster, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};
use postgres::Client;

const REFUSES: &str =
    "ALTER TABLE outbox ADD CONSTRAINT short CHECK (char_length(subject) <= 200) NOT VALID";
const SENDS: &str = "SELECT mailroom_send('a@example.com', repeat('s', 300), 'T', group_key => k), \
    mailroom_send('b@example.com', 'S', 'T', group_key => k || 'b'), mailroom_send('b@example.com', 'S', 'T', group_key => k || 'b') \
    FROM (VALUES (NULL), ('g')) v (k)";

/// I8: a claim that meets rows that cannot be changed returns the others.
#[test]
fn a_claim_returns_the_others() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client.batch_execute(SENDS).unwrap();
    client.batch_execute(REFUSES).unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
    // The bad mails, one of them in a group, are left out.
    assert_eq!(number(&mut client, claim), 4);
    assert_eq!(number(&mut client, claim), 0);
    let group = "SELECT count(*) FROM mailroom_claim_group(10, '1 h', 'me', 'g')";
    assert_eq!(number(&mut client, group), 0);
    // A claim that has expired, of a row that cannot be changed.
    client
        .batch_execute(
            "ALTER TABLE outbox DROP CONSTRAINT short; \
             SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed'), claimant => 'me')",
        )
        .unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 ms', 'me')";
    assert_eq!(number(&mut client, claim), 2);
    client.batch_execute(REFUSES).unwrap();
    client
        .batch_execute("SELECT pg_sleep(0.01), mailroom_send('c@example.com', 'S', 'T')")
        .unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
    assert_eq!(number(&mut client, claim), 1);
    let mut other = _cluster.connect("app");
    assert_eq!(number(&mut other, claim), 0);
    client
        .batch_execute("SELECT mailroom_send('c@example.com', 'S', 'T')")
        .unwrap();
    assert_eq!(number(&mut other, claim), 1);
    client
        .batch_execute("ALTER TABLE outbox DROP CONSTRAINT short")
        .unwrap();
    assert_eq!(number(&mut other, claim), 2);
}

/// A row that was locked by a transaction and changed by its subtransaction would need a MultiXact, which lasts.
#[test]
fn a_claim_makes_no_multixact() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let next = "SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()";
    client.batch_execute("CHECKPOINT").unwrap();
    let before = number(&mut client, next);
    client.batch_execute(SENDS).unwrap();
    client.batch_execute(DOOMED).unwrap();
    client.batch_execute(REFUSES).unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 ms', 'me')";
    assert_eq!(number(&mut client, claim), 4);
    // Each in a transaction of its own.
    for statement in [
        "SELECT pg_sleep(0.01)",
        "SELECT _expire_leases(clock_timestamp(), 10)",
        "SELECT count(*) FROM mailroom_claim_group(10, '1 h', 'me', 'gb')",
        "CHECKPOINT",
    ] {
        client.batch_execute(statement).unwrap();
    }
    assert_eq!(number(&mut client, next), before);
}

/// Claims of one mail at a time, with bad rows in front.
#[test]
fn bad_rows_in_front_hide_nothing() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', repeat('s', 300), 'T', priority => -5) FROM generate_series(1, 3); \
             SELECT mailroom_send('b@example.com', 'S', 'T') FROM generate_series(1, 3)",
        )
        .unwrap();
    client.batch_execute(REFUSES).unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(1, '1 h', 'me')";
    for _ in 0..3 {
        assert_eq!(number(&mut client, claim), 1);
    }
    assert_eq!(number(&mut client, claim), 0);
}

/// A trigger that refuses each change after which this condition holds, with an error that a missing privilege has as well.
fn refuse(condition: &str) -> String {
    format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$; \
         CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
    )
}

/// Mail that has expired, and mail without a template.
const DOOMED: &str = "INSERT INTO outbox (kind, recipients, subject, body_text, expires_at, group_key, priority) \
    SELECT 'own', '{a@example.com}', 'S', 'T', now() - interval '1 h', k, -5 FROM (VALUES (NULL), ('g')) v (k); \
    INSERT INTO outbox (kind, recipients, group_key, priority) \
    SELECT 'unknown', '{a@example.com}', k, -5 FROM (VALUES (NULL), ('g')) v (k)";

/// I8
#[test]
fn mail_that_may_not_end_holds_up_no_claim() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client.batch_execute(DOOMED).unwrap();
    client.batch_execute(SENDS).unwrap();
    client
        .batch_execute(&refuse("NEW.state IN ('expired', 'error')"))
        .unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(2, '1 h', 'me')";
    assert_eq!(number(&mut client, claim), 2);
    // Another session, and the others of a group, with two that may not end before them.
    let mut other = cluster.connect("app");
    let group = "SELECT count(*) FROM mailroom_claim_group(1, '1 h', 'me', 'g')";
    assert_eq!(number(&mut other, group), 1);
    client
        .batch_execute("DROP TRIGGER refuse ON outbox")
        .unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
    let mut third = cluster.connect("app");
    assert_eq!(number(&mut third, claim), 3);
    let ended = "SELECT count(*) FROM outbox WHERE state IN ('expired', 'error')";
    assert_eq!(number(&mut client, ended), 2, "those of the group wait");
}

/// I8
#[test]
fn a_claim_that_may_not_be_taken_over_holds_up_no_other() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S ' || i, 'T') FROM generate_series(1, 3) i; \
             SELECT mailroom_claim(10, '1 h', 'mailroom worker/1/x')",
        )
        .unwrap();
    client
        .batch_execute(&refuse("NEW.subject = 'S 2'"))
        .unwrap();
    let over = "SELECT _expire_previous_claims('1')";
    assert_eq!(number(&mut client, over), 2);
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
    assert_eq!(number(&mut client, claim), 2);
}

/// I8
#[test]
fn mail_that_may_not_move_holds_up_no_other() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) VALUES (1, '%', 'first', 'main', '0 s'); \
             SELECT mailroom_send('a@example.com', 'S ' || i, 'T') FROM generate_series(1, 6) i",
        )
        .unwrap();
    client
        .batch_execute(&refuse(
            "OLD.transport <> NEW.transport AND NEW.subject < 'S 4'",
        ))
        .unwrap();
    let fall_back = "SELECT _fall_back('main', '{first}', '{1 h}', 2)";
    assert_eq!(number(&mut client, fall_back), 2);
    assert_eq!(number(&mut client, fall_back), 1);
    let moved = "SELECT count(*) FROM outbox WHERE transport = 'main' AND subject >= 'S 4'";
    assert_eq!(number(&mut client, moved), 3);
}

/// I8: a token cannot be deleted because its mail may not end, or because a table of the application refers to it.
#[test]
fn a_token_that_may_not_be_deleted_holds_up_no_purge() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 4) i; \
             SELECT mailroom_collect(); \
             UPDATE tokens SET created_at = 0, expires_at = 1; \
             CREATE TABLE refers (token bigint REFERENCES tokens); \
             INSERT INTO refers SELECT min(id) FROM tokens",
        )
        .unwrap();
    client.batch_execute(&refuse("NEW.account_id = 2")).unwrap();
    assert_eq!(
        number(&mut client, "SELECT purged FROM mailroom_purge()"),
        2
    );
    let left = "SELECT sum(account) FROM tokens";
    assert_eq!(number(&mut client, left), 3);
}

/// A mail of a group of its own that cannot be changed.
fn send_bad(client: &mut Client) {
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'bad', 'T', group_key => 'g1')")
        .unwrap();
    client
        .batch_execute(&refuse("NEW.subject = 'bad'"))
        .unwrap();
}

#[test]
fn rows_that_are_claimed_one_at_a_time_are_claimed_in_order() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    send_bad(&mut client);
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'A', 'T', group_key => 'g', priority => 10); \
             SELECT mailroom_send('a@example.com', 'bad', 'T', group_key => 'g', priority => -20); \
             SELECT mailroom_send('a@example.com', 'B', 'T', group_key => 'g', priority => -10)",
        )
        .unwrap();
    let claimed = client
        .query_one(
            "SELECT subject FROM mailroom_claim_group(1, '1 h', 'me', 'g')",
            &[],
        )
        .unwrap();
    assert_eq!(claimed.get::<_, String>(0), "B");
}

/// I8: a claim of any group returns the others, of each transport, in their order.
#[test]
fn a_bad_row_of_one_group_holds_up_no_other_group() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    send_bad(&mut client);
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', group_key => 'g3'); \
             SELECT mailroom_send('a@example.com', 'S', 'T', group_key => 'g2', priority => -1)",
        )
        .unwrap();
    let claim = "SELECT group_key::text FROM mailroom_claim_group(1, '1 h', 'me')";
    for group in ["g2", "g3"] {
        let claimed = client.query_one(claim, &[]).unwrap();
        assert_eq!(claimed.get::<_, String>(0), group);
    }
    assert!(client.query(claim, &[]).unwrap().is_empty());
}

/// Mail that came back because the fallback was paused as well is carried by it later.
#[test]
fn mail_that_came_back_can_fall_back_again() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) \
             VALUES (1, '%', 'first', 'main', '0 s'), (2, '%', 'main', 'first', '0 s'); \
             SELECT mailroom_send('a@example.com', 'S', 'T')",
        )
        .unwrap();
    for (to, from) in [("main", "first"), ("first", "main"), ("main", "first")] {
        let fall_back = format!("SELECT _fall_back('{to}', '{{{from}}}', '{{1 h}}', 10)");
        assert_eq!(number(&mut client, &fall_back), 1, "to {to}");
    }
    let (to, from) = ("transport = 'main'", "fallback_from = 'first'");
    let there = format!("SELECT count(*) FROM outbox WHERE {to} AND {from}");
    assert_eq!(number(&mut client, &there), 1);
}

/// A row that a table of the application keeps costs a purge a few statements, not one for each row of its batch.
#[test]
fn a_mail_that_may_not_be_deleted_costs_few_statements() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             SELECT 'own', '{a@example.com}', 'sent', now() - interval '30 days', now() - interval '20 days' FROM generate_series(1, 1000); \
             CREATE TABLE refers (mail bigint REFERENCES outbox); \
             INSERT INTO refers VALUES (500); \
             CREATE SEQUENCE statements; \
             CREATE FUNCTION count_one() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ \
                 BEGIN PERFORM nextval('public.statements'); RETURN NULL; END $$; \
             CREATE TRIGGER count_one BEFORE DELETE ON outbox EXECUTE FUNCTION count_one()",
        )
        .unwrap();
    assert_eq!(
        number(&mut client, "SELECT purged FROM mailroom_purge()"),
        999
    );
    let statements = number(&mut client, "SELECT last_value FROM statements");
    assert!(statements < 40, "{statements} statements");
}

#[test]
fn the_worker_sends_the_others_and_says_so_once() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    post.client.batch_execute(DOOMED).unwrap();
    post.client.batch_execute(SENDS).unwrap();
    post.client.batch_execute(REFUSES).unwrap();
    post.client
        .batch_execute(&refuse("NEW.state IN ('expired', 'error')"))
        .unwrap();
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    post.wait_for("state = 'sent'", 4);
    for sent in 5..8 {
        post.send(1);
        post.wait_for("state = 'sent'", sent);
    }
    let log = post.log();
    assert_eq!(
        log.matches("cannot be changed, and waits").count(),
        1,
        "{log}"
    );
    assert!(!log.contains("could not claim or settle mail"), "{log}");
    post.client
        .batch_execute("ALTER TABLE outbox DROP CONSTRAINT short; DROP TRIGGER refuse ON outbox")
        .unwrap();
    post.wait_for("state = 'sent'", 9);
    post.wait_for("state = 'expired'", 2);
    post.wait_for("state = 'error'", 2);
    assert_eq!(receiver.count(), 9);
}
