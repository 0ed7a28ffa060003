//! Ended mail is found by address, by an index that costs nothing before a mail ends.

use postgres::Client;

use crate::cluster::{Cluster, number};

const QUIET: &[&str] = &["shared_preload_libraries = ''", "autovacuum = off"];

/// The ids of ended mail to this address.
fn found(client: &mut Client, address: &str) -> Vec<i64> {
    let rows = client.query(
        "SELECT o.id FROM outbox o \
         WHERE _search_keys(o.recipients || o.cc || o.bcc) COLLATE \"C\" @> ARRAY[mailroom_address_key($1)] AND o.ended_at IS NOT NULL \
         ORDER BY o.id",
        &[&address],
    );
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

// needs: pageinspect
#[test]
fn only_the_end_of_a_mail_writes_to_the_index_of_addresses() {
    let (_cluster, mut client) = Cluster::start_with_app(QUIET);
    client
        .batch_execute("CREATE EXTENSION pageinspect")
        .unwrap();
    let entries =
        "SELECT n_pending_tuples FROM gin_metapage_info(get_raw_page('outbox_addresses', 0))";
    for (statement, written) in [
        (
            "SELECT mailroom_send(format('Ann %1$s <Ann%1$s@Example.com>', i), 'S', 'T', cc => 'ops@example.com') FROM generate_series(1, 10) i",
            0,
        ),
        ("SELECT mailroom_reschedule(1, now())", 0),
        ("SELECT mailroom_claim(10, claimant => 'me')", 0),
        (
            "SELECT mailroom_extend(1, '1 h', claimant => 'me'), mailroom_release(2, claimant => 'me')",
            0,
        ),
        (
            "SELECT mailroom_mark_error(3, 'not now', '1 h', claimant => 'me')",
            0,
        ),
        ("SELECT mailroom_mark_sent(4, claimant => 'me')", 1),
        (
            "SELECT mailroom_mark_error(5, 'no', permanent => true, claimant => 'me')",
            2,
        ),
        ("SELECT mailroom_cancel(2)", 3),
        ("SELECT mailroom_retry(5)", 3),
    ] {
        client.batch_execute(statement).unwrap();
        assert_eq!(number(&mut client, entries), written, "{statement}");
    }
    assert_eq!(found(&mut client, "ann4@example.COM"), [4]);
    assert_eq!(found(&mut client, "ops@example.com"), [2, 4]);
    assert!(found(&mut client, "ann5@example.com").is_empty());
}

#[test]
fn a_look_up_reads_the_index_of_addresses() {
    let (_cluster, mut client) = Cluster::start_with_app(QUIET);
    client
        .batch_execute(
            "SELECT mailroom_send(format('%s@example.com', i), 'S', 'T') FROM generate_series(1, 1000) i; \
             SELECT count(mailroom_cancel(id)) FROM outbox; ANALYZE outbox",
        )
        .unwrap();
    let plan: Vec<String> = client
        .query(
            "EXPLAIN SELECT id FROM outbox \
             WHERE _search_keys(recipients || cc || bcc) COLLATE \"C\" @> ARRAY['7@example.com'] AND ended_at IS NOT NULL",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let plan = plan.join("\n");
    assert!(plan.contains("Index Scan on outbox_addresses"), "{plan}");
    assert_eq!(found(&mut client, "7@example.com").len(), 1);
}

/// An index holds no key of this size, and the mail must end all the same.
#[test]
fn what_is_no_address_does_not_keep_a_mail_from_ending() {
    let (_cluster, mut client) = Cluster::start_with_app(QUIET);
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text) \
             SELECT 'own', ARRAY[string_agg(sha256(i::text::bytea)::text, '' ORDER BY i), 'known@example.com'], 'S', 'T' \
             FROM generate_series(1, 500) i; \
             UPDATE outbox SET state = 'cancelled'",
        )
        .unwrap();
    assert_eq!(found(&mut client, "known@example.com").len(), 1);
}
