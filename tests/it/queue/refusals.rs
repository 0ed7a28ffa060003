//! What a policy, a trigger or a foreign key of the application refuses: no other row waits for it.

use crate::cluster::{Cluster, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};

/// A trigger that refuses each new row of a table for which this condition holds, as a policy does.
fn refuse_new(table: &str, condition: &str) -> String {
    format!(
        "CREATE FUNCTION refuse_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege USING HINT = 'Ask a@example.com'; END $$; \
         CREATE TRIGGER refuse_new BEFORE INSERT ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse_new()"
    )
}

/// I8
#[test]
fn a_token_that_the_outbox_refuses_holds_up_no_other() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(&refuse_new(
            "outbox",
            "NEW.account_id = 1 AND NEW.state = 'scheduled'",
        ))
        .unwrap();
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    // Alone, it may be a missing privilege.
    let collect = "SELECT mailroom_collect()::bigint";
    let error = client.query(collect, &[]).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "42501", "{error:?}");
    assert_eq!(error.hint(), Some("Ask [address]"));
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 1);
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')")
        .unwrap();
    assert_eq!(number(&mut client, collect), 1);
    let failed = "SELECT count(*) FROM outbox WHERE account_id = 1 AND state = 'error'";
    assert_eq!(number(&mut client, failed), 1);
}

/// I1: the outbox takes not even the row that says that a mail failed.
#[test]
fn a_token_whose_failure_cannot_be_recorded_is_not_dropped() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(&refuse_new("outbox", "NEW.account_id = 1"))
        .unwrap();
    client
        .batch_execute("INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 2) i")
        .unwrap();
    let collect = "SELECT mailroom_collect()::bigint";
    client.query(collect, &[]).unwrap_err();
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 2);
    client
        .batch_execute("DROP TRIGGER refuse_new ON outbox")
        .unwrap();
    assert_eq!(number(&mut client, collect), 2);
}

/// I8: more accounts are refused than one call answers, and one of them is asked for more often than it looks at.
#[test]
fn accounts_whose_tokens_are_refused_hold_up_no_answer() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) SELECT i || '@example.com', i, 'active' FROM generate_series(1, 151) i; \
             SELECT mailroom_request_recovery('1@example.com') FROM generate_series(1, 1000); \
             SELECT mailroom_request_recovery(i || '@example.com') FROM generate_series(2, 151) i",
        )
        .unwrap();
    client
        .batch_execute(&refuse_new("tokens", "NEW.account <= 150"))
        .unwrap();
    let answer = "SELECT mailroom_answer_requests()::bigint";
    let made: i64 = (0..4).map(|_| number(&mut client, answer)).sum();
    assert_eq!(made, 1);
    let left = "SELECT count(*) FROM link_requests";
    assert_eq!(number(&mut client, left), 0);
}

/// Django declares its foreign keys so.
const DEFERRED: &str = "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
    CREATE CONSTRAINT TRIGGER look AFTER INSERT OR UPDATE ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look(); \
    CREATE CONSTRAINT TRIGGER look AFTER INSERT ON tokens DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look(); \
    CREATE TABLE refers (mail bigint REFERENCES outbox DEFERRABLE INITIALLY DEFERRED, token bigint REFERENCES tokens DEFERRABLE INITIALLY DEFERRED)";

#[test]
fn deferred_constraints_stop_no_delivery() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &["mailroom.retention = '1 min'"]);
    post.client.batch_execute(DEFERRED).unwrap();
    post.client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
             INSERT INTO accounts (email, login, status) VALUES ('b@example.com', 'b', 'active'); \
             SELECT mailroom_request_recovery('b@example.com'); \
             SELECT mailroom_send('c@example.com', 'S', 'T')",
        )
        .unwrap();
    post.wait_for("state = 'sent'", 3);
    post.client
        .batch_execute(
            "SELECT mailroom_pause(); \
             UPDATE outbox SET created_at = now() - interval '1 h', ended_at = now() - interval '1 h'; \
             INSERT INTO refers SELECT min(id) FROM outbox; \
             SELECT mailroom_purge()",
        )
        .unwrap();
    assert_eq!(
        number(&mut post.client, "SELECT count(*) FROM outbox"),
        1,
        "a mail to which a row refers stays"
    );
    let log = post.log();
    assert!(!log.contains("deferred"), "{log}");
}

/// A deferred trigger that refuses every change of one mail, that mail, and two others.
pub const BAD_AND_DEFERRED: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
    CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON outbox DEFERRABLE INITIALLY DEFERRED \
    FOR EACH ROW WHEN (NEW.subject = 'bad') EXECUTE FUNCTION refuse(); \
    SELECT mailroom_send('a@example.com', s, 'T') FROM unnest('{bad,good,good}'::text[]) s";

/// As docs/guides/consumers.md says.
#[test]
fn a_client_claims_beside_a_deferred_trigger() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client.batch_execute(BAD_AND_DEFERRED).unwrap();
    let claim =
        "BEGIN; SET CONSTRAINTS ALL IMMEDIATE; SELECT mailroom_claim(10, '1 h', 'me'); COMMIT";
    client.batch_execute(claim).unwrap();
    let claimed = "SELECT count(*) FROM outbox WHERE state = 'claimed' AND subject = 'good'";
    assert_eq!(number(&mut client, claimed), 2);
}
