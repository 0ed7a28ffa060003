//! Groups that are held, and claims that expire.

use std::collections::HashSet;
use std::time::Duration;

use super::prepare;
use crate::cluster::{eventually, number};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

/// Claims in one session; returns the ids and the number of pages that were accessed.
fn claim_counting(client: &mut Client, limit: i32) -> (Vec<i64>, i64) {
    let looked = "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit \
                  FROM pg_statio_user_tables WHERE relname = 'outbox'";
    let statistics = |client: &mut Client| {
        client
            .batch_execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
            .unwrap();
        number(client, looked)
    };
    let before = statistics(client);
    let rows = client
        .query(
            "SELECT id FROM mailroom_claim($1, '1 min', 'me')",
            &[&limit],
        )
        .unwrap();
    let after = statistics(client);
    (rows.iter().map(|row| row.get(0)).collect(), after - before)
}

#[test]
fn what_lies_behind_a_large_held_group_is_reached() {
    const HELD: i64 = 30_000;
    let (cluster, mut client) = prepare();
    client
        .batch_execute(&format!(
            "INSERT INTO outbox (kind, recipients, subject, body_text, priority, group_key) \
             SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', -10, 'large' FROM generate_series(1, {HELD}); \
             SELECT id FROM mailroom_claim_group(1, '1 h', 'holder'); \
             INSERT INTO outbox (kind, recipients, subject, body_text, priority, group_key) \
             VALUES ('own', '{{a@example.com}}', 'Hello', 'Text', -10, NULL), \
                    ('own', '{{a@example.com}}', 'Hello', 'Text', -10, 'other'), \
                    ('own', '{{a@example.com}}', 'Hello', 'Text', 0, NULL)"
        ))
        .unwrap();
    let behind = [HELD + 1, HELD + 2, HELD + 3];

    // Less urgent mail gets its turn in the first call of a session. For the rest, each call
    // skips a limited number of held rows.
    let mut found = Vec::new();
    let mut calls = 0;
    let mut most = 0;
    while found.len() < behind.len() {
        // Each call advances by 5,000 rows, or is a sweep after such a call.
        assert!(calls < 14, "only {found:?} were found");
        let (ids, pages) = claim_counting(&mut client, 10);
        if calls == 0 {
            assert_eq!(ids, [HELD + 3], "the first call");
        }
        most = most.max(pages);
        found.extend(ids);
        calls += 1;
    }
    found.sort_unstable();
    assert_eq!(found, behind);
    // A call accesses at most a page for each row, for 10,000 rows at most, or twice that if it starts over.
    assert!(most < 30_000, "a call looked at {most} pages");

    // Claims of whole groups skip the held group as well.
    client
        .batch_execute("SELECT mailroom_release(id, 'me') FROM outbox WHERE claimed_by = 'me'")
        .unwrap();
    let mut other = cluster.connect("app");
    let group = (0..20).find_map(|_| {
        let statement = "SELECT id FROM mailroom_claim_group(claimant => 'other')";
        let rows = other.query(statement, &[]).unwrap();
        rows.first().map(|row| row.get::<_, i64>(0))
    });
    assert_eq!(group, Some(HELD + 2));

    // No skipped row is lost: once the holder has released the group, it is handed out.
    client
        .batch_execute(
            "SELECT mailroom_release(id, 'holder') FROM outbox WHERE claimed_by = 'holder'",
        )
        .unwrap();
    let mut sent = HashSet::new();
    let left = "SELECT count(*) FROM outbox WHERE state = 'scheduled'";
    // Rows before this session's positions wait for a sweep.
    eventually("all of them to be claimed", || {
        loop {
            let (ids, _) = claim_counting(&mut client, 2_000);
            let settle = "SELECT mailroom_mark_sent_many($1::bigint[], claimant => 'me')";
            client.query(settle, &[&ids]).unwrap();
            if ids.is_empty() {
                return (number(&mut client, left) == 0).then_some(());
            }
            sent.extend(ids);
        }
    });
    assert_eq!(sent.len(), usize::try_from(HELD).unwrap() + 2);
}

/// I4: mail that was claimed and settled makes no later claim more expensive.
#[test]
fn the_dead_claims_of_a_group_cost_nothing_once_their_lease_is_over() {
    const ROUNDS: i64 = 60;
    const BATCH: i64 = 50;
    let (cluster, mut client) = prepare();
    let put = format!(
        "INSERT INTO outbox (kind, recipients, subject, body_text, group_key) \
         SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', 'group ' || i % 5 FROM generate_series(1, {BATCH}) i"
    );
    let limit = i32::try_from(BATCH).unwrap();
    client.batch_execute(&put).unwrap();
    let (ids, fresh) = claim_counting(&mut client, limit);
    assert_eq!(i64::try_from(ids.len()).unwrap(), BATCH);
    client
        .batch_execute("SELECT mailroom_mark_sent_many(array_agg(id), claimant => 'me') FROM outbox WHERE claimed_by = 'me'")
        .unwrap();

    // Nothing that dies from now on can be vacuumed.
    let mut holder = cluster.connect("app");
    let mut snapshot = holder.transaction().unwrap();
    snapshot
        .batch_execute(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox",
        )
        .unwrap();
    for _ in 0..ROUNDS {
        client.batch_execute(&put).unwrap();
        client
            .batch_execute(&format!(
                "WITH c AS (SELECT id FROM mailroom_claim({BATCH}, '1 ms', 'me')) \
                 SELECT mailroom_mark_sent_many(array_agg(id), claimant => 'me') FROM c"
            ))
            .unwrap();
    }
    // Each row has two dead versions by now, and the session's cursors are before those of the last 100 ms.
    eventually("a claim to cost what it did", || {
        client.batch_execute(&put).unwrap();
        let (ids, pages) = claim_counting(&mut client, limit);
        let settle = "SELECT mailroom_mark_sent_many($1::bigint[], claimant => 'me')";
        client.query(settle, &[&ids]).unwrap();
        assert_eq!(i64::try_from(ids.len()).unwrap(), BATCH);
        // One search per row, past all dead entries, would access BATCH * ROUNDS * BATCH / 5 of them.
        (pages < 3 * fresh.max(1_000)).then_some(())
    });
    snapshot.commit().unwrap();
}

#[test]
fn a_lease_that_is_cut_short_is_announced() {
    let (cluster, mut client) = prepare();
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T'); SELECT id FROM mailroom_claim(1, '1 h', 'me')",
        )
        .unwrap();
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    for (lease, expected) in [("2 h", 0), ("1 h", 1), ("30 min", 1), ("3 h", 0)] {
        client
            .batch_execute(&format!(
                "SELECT mailroom_extend(id, '{lease}', 'me') FROM outbox; NOTIFY outbox_due, 'end'"
            ))
            .unwrap();
        let mut told = 0;
        eventually("the last notification", || {
            let mut notifications = listener.notifications();
            let mut arriving = notifications.timeout_iter(Duration::from_millis(100));
            while let Some(notification) = arriving.next().unwrap() {
                if notification.payload() == "end" {
                    return Some(());
                }
                told += 1;
            }
            None
        });
        assert_eq!(told, expected, "a lease of {lease} from now");
    }
}
