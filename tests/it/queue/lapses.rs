//! Claims that expire: each counts as an attempt, and five in a row end the mail. Also mail that a claim ends.

use crate::cluster::{Cluster, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};
use postgres::Client;

/// Claims the mail with a lease that expires at once, and has the claim taken back; returns the failed attempts of the
/// mail, its state, and whether it has to wait.
fn lapse(client: &mut Client) -> (i32, String, bool) {
    client
        .batch_execute("UPDATE outbox SET send_at = created_at WHERE state = 'scheduled'")
        .unwrap();
    let claim = "SELECT count(*) FROM mailroom_claim(1, '1 microsecond', 'short-lived')";
    assert_eq!(number(client, claim), 1);
    let expire = "SELECT _expire_leases(clock_timestamp(), 10)::bigint";
    assert_eq!(number(client, expire), 1);
    let row = client
        .query_one(
            "SELECT failed_attempts, state::text, send_at > updated_at FROM outbox",
            &[],
        )
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[test]
fn mail_that_cannot_be_rendered_ends_and_the_log_says_so_once() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    post.client
        .batch_execute(
            "INSERT INTO templates (kind, locale, subject, body_text) VALUES ('own', 'en', '{{ canary | length }}', '{{ 1 / 0 }}'); \
             INSERT INTO outbox (kind, recipients, data) \
             SELECT 'own', '{canary@example.com}', '{\"canary\": \"canary\"}' FROM generate_series(1, 20); \
             SELECT mailroom_send('a@example.com', 'S', 'T')",
        )
        .unwrap();
    post.wait_for("state = 'error' AND kind = 'own'", 20);
    post.wait_for("state = 'sent'", 1);
    let log = post.log();
    let warning = "mail ended as error: 20\n";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(!log.contains("canary"), "{log}");
}

/// Mail that a deliverer held when it was killed may have been sent.
#[test]
fn failed_mail_that_a_lease_ended_on_is_retried_only_by_that_name() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
        .unwrap();
    for _ in 0..4 {
        lapse(&mut client);
    }
    assert_eq!(lapse(&mut client).1, "error");
    let retry = |condition: &str| format!("SELECT mailroom_retry_failed({condition})::bigint");
    for other in [
        "since => '-infinity'",
        "outcome => 'failed'",
        "transport => 'main'",
    ] {
        assert_eq!(number(&mut client, &retry(other)), 0, "{other}");
    }
    assert_eq!(number(&mut client, &retry("outcome => 'lease_expired'")), 1);
}

/// The attempts of a mail tell whether it may have been sent, so they stay as long as it does.
#[test]
fn a_purge_leaves_the_attempts_of_mail_that_stays() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T') FROM generate_series(1, 2); \
             SELECT mailroom_claim(2, '1 microsecond', 'me'); SELECT _expire_leases(clock_timestamp(), 10); \
             UPDATE outbox_attempts SET ended_at = now() - interval '1 year'; \
             DELETE FROM outbox WHERE id = 1; \
             SELECT mailroom_purge()",
        )
        .unwrap();
    let attempts = "SELECT sum(outbox_id)::bigint FROM outbox_attempts";
    assert_eq!(number(&mut client, attempts), 2);
}

#[test]
fn five_lapses_in_a_row_end_a_mail_and_a_retry_gives_it_five_more() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
        .unwrap();
    for round in [0, 5] {
        // After the first expired lease it is due again at once.
        for lapsed in 1..=4 {
            assert_eq!(
                lapse(&mut client),
                (round + lapsed, "scheduled".to_owned(), lapsed > 1)
            );
        }
        let (attempts, state, _) = lapse(&mut client);
        assert_eq!((attempts, state.as_str()), (round + 5, "error"));
        let told = "SELECT count(*) FROM outbox WHERE last_error = 'lease expired' AND failed_attempts < max_attempts";
        assert_eq!(number(&mut client, told), 1);
        let retry = "SELECT mailroom_retry_failed(outcome => 'lease_expired')::bigint";
        assert_eq!(number(&mut client, retry), 1);
    }
    // Twice within a minute is logged once.
    let log = cluster.log();
    let warning = "mail ended as error: 1\n";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    // An attempt that was settled starts the count again.
    lapse(&mut client);
    lapse(&mut client);
    client
        .batch_execute(
            "UPDATE outbox SET send_at = created_at; SELECT mailroom_claim(1, '1 h', 'me'); \
             SELECT mailroom_mark_error(id, 'no', claimant => 'me') FROM outbox",
        )
        .unwrap();
    for lapsed in 14..=17 {
        assert_eq!(
            lapse(&mut client),
            (lapsed, "scheduled".to_owned(), lapsed > 14)
        );
    }
}
