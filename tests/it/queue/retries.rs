//! Token mail that is retried while its token is pending again.

use crate::cluster::{Cluster, number};
use postgres::Client;

const LIVE: &str = "SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')";

/// The mail of a recovery, which ended as error; its token is still valid.
fn with_failed_mail() -> (Cluster, Client) {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
             INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts; \
             SELECT mailroom_collect()",
        )
        .unwrap();
    fail(&mut client);
    (cluster, client)
}

fn fail(client: &mut Client) {
    let fail = "SELECT count(*) FROM mailroom_claim(1, '1 h', 'me') c WHERE mailroom_mark_error(c.id, 'no', permanent => true, claimant => 'me')";
    assert_eq!(number(client, fail), 1);
    assert_eq!(number(client, LIVE), 0);
}

/// What a request for the link does once the interval has passed.
fn make_pending(client: &mut Client) {
    client
        .batch_execute("INSERT INTO pending (lane, token_id) SELECT 0, id FROM tokens WHERE action = 'password_recovery'")
        .unwrap();
}

#[test]
fn the_mail_of_a_pending_token_is_not_retried() {
    let (_cluster, mut client) = with_failed_mail();
    make_pending(&mut client);
    let error = client
        .batch_execute("SELECT mailroom_retry(id) FROM outbox")
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55000", "{error:?}");
    let retry = "SELECT mailroom_retry_failed(kind => 'password_recovery')::bigint";
    assert_eq!(number(&mut client, retry), 0);
    assert_eq!(number(&mut client, "SELECT mailroom_collect()::bigint"), 1);
    assert_eq!(number(&mut client, LIVE), 1);
    // Nor while the new mail is to be sent. After that one fails, it is the one that is retried.
    assert_eq!(number(&mut client, retry), 0);
    fail(&mut client);
    assert_eq!(number(&mut client, retry), 1);
    let last = "SELECT count(*) FROM outbox WHERE state = 'scheduled' AND id = (SELECT max(id) FROM outbox)";
    assert_eq!(number(&mut client, last), 1);
}

#[test]
fn a_pending_token_whose_mail_was_retried_is_not_collected() {
    let (_cluster, mut client) = with_failed_mail();
    client
        .batch_execute(
            "SELECT mailroom_retry(id) FROM outbox; \
             INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')",
        )
        .unwrap();
    make_pending(&mut client);
    let (collected, skipped): (i32, i32) = {
        let row = client
            .query_one("SELECT collected, skipped FROM _run_batch(10, 'poll')", &[])
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!((collected, skipped), (1, 1));
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 0);
    assert_eq!(number(&mut client, LIVE), 2);
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 2);
}
