//! Rows whose change a constraint or a trigger of the application refuses.

use crate::cluster::{Cluster, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};

const REFUSES: &str =
    "ALTER TABLE outbox ADD CONSTRAINT short CHECK (char_length(subject) <= 200) NOT VALID";
const SENDS: &str = "SELECT mailroom_send('a@example.com', repeat('s', 300), 'T', group_key => k), \
    mailroom_send('b@example.com', 'S', 'T', group_key => k || 'b'), mailroom_send('b@example.com', 'S', 'T', group_key => k || 'b') \
    FROM (VALUES (NULL), ('g')) v (k)";

#[test]
fn a_client_claims_the_others_once_it_has_failed() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client.batch_execute(SENDS).unwrap();
    client.batch_execute(REFUSES).unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(10, '1 h', 'me')";
    let error = client.query(claim, &[]).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23514");
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
    other.query(claim, &[]).unwrap_err();
    client
        .batch_execute("SELECT mailroom_send('c@example.com', 'S', 'T')")
        .unwrap();
    assert_eq!(number(&mut other, claim), 1);
    client
        .batch_execute("ALTER TABLE outbox DROP CONSTRAINT short")
        .unwrap();
    assert_eq!(number(&mut other, claim), 2);
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
    client.query(claim, &[]).unwrap_err();
    for _ in 0..3 {
        assert_eq!(number(&mut client, claim), 1);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    assert_eq!(number(&mut client, claim), 0);
}

#[test]
fn a_claim_that_is_rolled_back_is_no_failure() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client.batch_execute(SENDS).unwrap();
    client
        .batch_execute("BEGIN; SELECT count(*) FROM mailroom_claim(10); ROLLBACK")
        .unwrap();
    let careful = "SELECT _begin_changes()::integer::bigint";
    assert_eq!(number(&mut client, careful), 0);
}

#[test]
fn the_worker_sends_the_others_and_says_so_once() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    post.client.batch_execute(SENDS).unwrap();
    post.client.batch_execute(REFUSES).unwrap();
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
    assert_eq!(
        log.matches("could not claim or settle mail").count(),
        1,
        "{log}"
    );
    post.client
        .batch_execute("ALTER TABLE outbox DROP CONSTRAINT short")
        .unwrap();
    post.wait_for("state = 'sent'", 9);
    assert_eq!(receiver.count(), 9);
}
