//! I4, for the upkeep of the outbox and for purges.

use postgres::Client;

use super::{hold_snapshot, pages, untidied};
use crate::cluster::{eventually_or_tell, number};

/// The worker's upkeep and a purge, behind many mails that were claimed and settled.
#[test]
fn i4_upkeep_looks_at_as_many_pages_while_a_snapshot_is_held() {
    let (cluster, mut client) = untidied();
    let mut holder = hold_snapshot(&cluster, "outbox");
    client.batch_execute("SET mailroom.retention = 0").unwrap();
    let steps = [
        "SELECT _maintain_outbox()",
        "SELECT _others_deliver(NULL)",
        "SELECT mailroom_purge(250)",
    ];
    let [early, late] = [10, 70].map(|more| {
        for _ in 0..more {
            client
                .batch_execute(
                    "INSERT INTO outbox (kind, recipients, subject, body_text) \
                     SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 250); \
                     SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM mailroom_claim(250, '1 ms', 'me')), claimant => 'me')",
                )
                .unwrap();
            for statement in steps {
                client.batch_execute(statement).unwrap();
            }
        }
        // Positions stay a second behind the present, and a call starts at the beginning as often as a twentieth of the time
        // allows: here no more.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        client
            .batch_execute(
                "SELECT _scan_sweep(s), _scan_spend(s, 1000), _scan_end(s) FROM unnest('{leases,next lapse,purge outbox}'::text[]) s",
            )
            .unwrap();
        steps.map(|statement| (0..3).map(|_| pages(&mut client, statement)).min().unwrap())
    });
    assert_eq!(
        number(&mut client, "SELECT count(*) FROM outbox"),
        0,
        "all were purged"
    );
    for ((statement, early), late) in steps.iter().zip(early).zip(late) {
        assert!(
            late * 5 <= early * 6,
            "{statement}: {early} pages, later {late}"
        );
    }
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Whether others deliver is not looked up among all claims that the worker has settled.
#[test]
fn i4_others_are_looked_for_in_few_pages_while_a_snapshot_is_held() {
    let (cluster, mut client) = untidied();
    let mut holder = hold_snapshot(&cluster, "outbox");
    let mut worker = cluster.connect("app");
    // Fills its caches.
    pages(&mut worker, "SELECT _others_deliver('{main}')");
    for _ in 0..20 {
        client
            .batch_execute(
                "INSERT INTO outbox (transport, kind, recipients, subject, body_text) \
                 SELECT 'main', 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 250); \
                 SELECT mailroom_mark_sent_many( \
                     ARRAY(SELECT id FROM mailroom_claim(250, '1 ms', 'me', '{main}')), claimant => 'me')",
            )
            .unwrap();
    }
    let looked = pages(&mut worker, "SELECT _others_deliver('{main}')");
    assert!(looked < 100, "{looked} pages");
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Has so many thousand mails claimed and settled.
fn settle_thousands(client: &mut Client, rounds: u64) {
    // The order of send_at is not that of the rows in the table.
    client
        .batch_execute(&format!(
            "INSERT INTO outbox (kind, recipients, subject, body_text, send_at) \
             SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', now() - random() * interval '1 hour' \
             FROM generate_series(1, {rounds} * 1000)"
        ))
        .unwrap();
    for _ in 0..rounds {
        client
            .batch_execute("SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM mailroom_claim(1000, '1 ms', 'me')), claimant => 'me')")
            .unwrap();
    }
}

/// While nothing can be vacuumed, rows that arrive before all positions are found by sweeps, and few calls scan everything:
/// mail of a known and of a new priority, a claim that expired long ago, and urgent mail when the budgets have room for
/// no other.
#[test]
fn i4_what_came_in_late_is_found_by_a_sweep_while_a_snapshot_is_held() {
    const ROUNDS: u64 = 60;
    let (cluster, mut client) = untidied();
    let mut holder = hold_snapshot(&cluster, "outbox");
    settle_thousands(&mut client, ROUNDS);
    // A scan of everything accesses a page for each row.
    let all = 1_000 * ROUNDS;
    let mut other = cluster.connect("app");
    other
        .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        .unwrap();
    let looked = pages(
        &mut other,
        "SELECT id FROM outbox WHERE state = 'scheduled'",
    );
    assert!(looked > all, "{looked} pages");
    other
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, priority, send_at) \
             SELECT 'own', '{a@example.com}', 'Hello', 'Text', p, now() - interval '2 hours' FROM unnest('{-5, 0, 7}'::integer[]) p; \
             INSERT INTO outbox (kind, recipients, subject, body_text, state, claimed_by, claimed_at, claimed_until) \
             SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'claimed', 'gone', now() - interval '1 hour', now() - interval '1 hour'",
        )
        .unwrap();
    client
        .batch_execute("CREATE TEMP TABLE found (id bigint)")
        .unwrap();
    let claim = "INSERT INTO found SELECT id FROM mailroom_claim(1000, '1 h', 'me')";
    eventually_or_tell("all that came in late to be claimed", || {
        client.batch_execute(claim).unwrap();
        match number(&mut client, "SELECT count(*) FROM found") {
            4 => Ok(()),
            found => Err(found),
        }
    });
    let sweeps = (0..20)
        .filter(|_| pages(&mut client, claim) > all / 4)
        .count();
    assert!(
        sweeps <= 5,
        "{sweeps} of 20 calls in a row scanned everything"
    );
    other
        .batch_execute(
            "INSERT INTO budgets (period, amount, reserved_share) VALUES ('month', 1000000, 1)",
        )
        .unwrap();
    for late in 5..=7 {
        other
            .batch_execute(
                "INSERT INTO outbox (kind, recipients, subject, body_text, priority, send_at) \
                 VALUES ('own', '{a@example.com}', 'Hello', 'Text', -20, now() - interval '2 hours')",
            )
            .unwrap();
        eventually_or_tell("late urgent mail to be claimed", || {
            client.batch_execute(claim).unwrap();
            let found = number(&mut client, "SELECT count(*) FROM found");
            if found == late { Ok(()) } else { Err(found) }
        });
    }
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Rows that may not be deleted hide no others from a purge, even in a session that never purged before. A purge
/// reports at once that nothing is left to delete.
#[test]
fn i4_a_purge_gets_past_what_it_may_not_delete_and_rests() {
    let (cluster, mut client) = untidied();
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, send_at, created_at) \
             SELECT 'own', '{a@example.com}', 'S', 'T', now() + interval '1 year', now() - interval '30 days' FROM generate_series(1, 3000); \
             INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             VALUES ('own', '{a@example.com}', 'sent', now() - interval '30 days', now() - interval '30 days'); \
             INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, error) \
             SELECT id, 1, 'failed', now(), now(), 'no' FROM outbox WHERE state = 'scheduled'; \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
             INSERT INTO tokens (account, action, created_at, expires_at) \
             SELECT 1, 'password_recovery', 1, extract(epoch FROM now() + interval '1 day') FROM generate_series(1, 2500); \
             INSERT INTO tokens (account, action, created_at, expires_at) VALUES (1, 'password_recovery', 1, 2)",
        )
        .unwrap();
    let purged: Vec<(i32, bool)> = (0..5)
        .map(|_| {
            let row = cluster
                .connect("app")
                .query_one("SELECT purged, more FROM mailroom_purge()", &[])
                .unwrap();
            (row.get(0), row.get(1))
        })
        .collect();
    // The first call deletes the mail, the third one the token after 2500 that expire later, and reaches the end.
    assert_eq!(
        purged[..3],
        [(1, true), (0, true), (1, false)],
        "{purged:?}"
    );
    for (table, rows) in [
        ("outbox", 3000),
        ("outbox_attempts", 3000),
        ("tokens", 2500),
    ] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(number(&mut client, &count), rows, "{table}");
    }
}

/// A purge of 1,000 mails looks at no more pages where there are many more to purge.
#[test]
fn i4_a_batch_of_a_purge_looks_at_as_many_pages_before_a_large_backlog() {
    let [few, many] = [3_000, 20_000].map(|backlog| {
        let (_cluster, mut client) = untidied();
        // They did not end in the order of the rows in the table.
        client
            .batch_execute(&format!(
                "INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
                 SELECT 'own', '{{a@example.com}}', 'sent', now() - interval '30 days', now() - interval '20 days' + i * 7919 % {backlog} * interval '1 s' \
                 FROM generate_series(1, {backlog}) i"
            ))
            .unwrap();
        client.batch_execute("VACUUM (ANALYZE) outbox").unwrap();
        // The first batch fills the session's caches.
        [(); 2].map(|()| pages(&mut client, "SELECT mailroom_purge(1000)"))[1]
    });
    assert!(
        many <= few + few / 4,
        "{few} pages, {many} before many more"
    );
}

/// Mail that a foreign key keeps hides no other mail from a session that continues to purge.
#[test]
fn i4_a_purge_gets_past_what_a_foreign_key_keeps() {
    let (_cluster, mut client) = untidied();
    client
        .batch_execute(
            "CREATE TABLE orders (mail bigint REFERENCES outbox); CREATE INDEX ON orders (mail); \
             WITH mail AS ( \
                 INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
                 SELECT 'own', '{a@example.com}', 'sent', now() - interval '30 days', now() - interval '20 days' + i * interval '1 s' \
                 FROM generate_series(1, 2500) i RETURNING id \
             ) INSERT INTO orders SELECT id FROM mail; \
             INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             SELECT 'own', '{a@example.com}', 'sent', now() - interval '30 days', now() - interval '19 days' \
             FROM generate_series(1, 700)",
        )
        .unwrap();
    let mut calls = 0;
    while number(&mut client, "SELECT count(*) FROM outbox") > 2500 {
        client.batch_execute("SELECT mailroom_purge()").unwrap();
        calls += 1;
        assert!(calls < 10);
    }
}

const TABLES: [&str; 5] = [
    "outbox",
    "tokens",
    "link_requests",
    "outbox_attempts",
    "job_runs",
];

/// Calls that each have a session of their own get past what foreign keys keep in each table, and say when
/// they are through. All rows ended at the same time, as those of one statement do.
#[test]
fn i4_purges_in_new_sessions_get_past_what_foreign_keys_keep_and_end() {
    let (cluster, mut client) = untidied();
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             SELECT 'own', '{a@example.com}', 'sent', now() - interval '30 days', now() - interval '20 days' FROM generate_series(1, 60); \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
             INSERT INTO tokens (account, action, created_at, expires_at) SELECT 1, 'password_recovery', 1, 2 FROM generate_series(1, 60); \
             INSERT INTO link_requests (email, action, requested_at) \
             SELECT 'a@example.com', 'password_recovery', now() - interval '20 days' FROM generate_series(1, 60); \
             INSERT INTO outbox_attempts (outbox_id, attempt, outcome, ended_at) \
             SELECT 0, 1, 'failed', now() - interval '20 days' FROM generate_series(1, 60); \
             INSERT INTO job_runs (started_at, duration, trigger) \
             SELECT now() - interval '20 days', '1 s', 'poll' FROM generate_series(1, 60)",
        )
        .unwrap();
    for table in TABLES {
        client
            .batch_execute(&format!(
                "CREATE TABLE of_{table} (id bigint PRIMARY KEY REFERENCES {table}); \
                 INSERT INTO of_{table} SELECT id FROM {table} ORDER BY id LIMIT 35"
            ))
            .unwrap();
    }
    let round = || {
        (1..=10)
            .find(|_| {
                !cluster
                    .connect("app")
                    .query_one("SELECT more FROM mailroom_purge(10)", &[])
                    .unwrap()
                    .get::<_, bool>(0)
            })
            .expect("more is false in the end")
    };
    assert_eq!(round(), 7, "the last one finds nothing");
    for table in TABLES {
        let kept = format!(
            "SELECT count(*) FROM {table} FULL JOIN of_{table} k USING (id) WHERE k.id > 0"
        );
        assert_eq!(number(&mut client, &kept), 35, "{table}");
        assert_eq!(
            number(&mut client, &format!("SELECT count(*) FROM {table}")),
            35,
            "{table}"
        );
    }
    // What is let go in the meantime is purged by the next round.
    for table in TABLES {
        client
            .batch_execute(&format!("DELETE FROM of_{table} WHERE id <= 3"))
            .unwrap();
    }
    round();
    for table in TABLES {
        assert_eq!(
            number(&mut client, &format!("SELECT count(*) FROM {table}")),
            32,
            "{table}"
        );
    }
}
