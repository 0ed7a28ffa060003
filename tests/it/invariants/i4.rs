//! I4: the cost of a statement is bounded: but for sweeps, it does not grow with the rows that were processed before.

use std::collections::BTreeMap;

use super::{STEPS, hold_snapshot, pages, rounds, untidied};
use crate::cluster::{Cluster, eventually_or_tell, number};
use postgres::Client;

/// The steps that accessed more pages in the last rounds than in the first ones, and how many.
///
/// A session sweeps the queue as often as the duration of sweeps allows; on a busy machine that may be most rounds. Sweeps
/// are not what this compares, so it takes the cheapest of some rounds.
fn costlier(rounds: &[BTreeMap<&'static str, u64>]) -> Vec<String> {
    let cheapest = |rounds: &[BTreeMap<&'static str, u64>], step: &str| {
        rounds.iter().map(|round| round[step]).min().unwrap()
    };
    STEPS
        .iter()
        .filter_map(|(step, _)| {
            // The first rounds fill the session's caches.
            let early = cheapest(&rounds[5..16], step);
            let late = cheapest(&rounds[rounds.len() - 51..], step);
            // A grown index costs a fifth more. One access to each row that was processed by then would add a third to
            // the most expensive step, and double the cheapest one.
            (late * 5 > early * 6).then(|| format!("{step}: {early} pages, later {late}"))
        })
        .collect()
}

// alone: sessions look through the queue as often as the time that it takes allows
#[test]
fn i4_a_batch_looks_at_as_many_pages_behind_many_processed_rows() {
    let (_cluster, mut client) = untidied();
    let costs = rounds(&mut client, "a", 300);
    assert_eq!(costlier(&costs), Vec::<String>::new());
}

// alone: sessions look through the queue as often as the time that it takes allows
#[test]
fn i4_a_batch_looks_at_as_many_pages_while_a_snapshot_is_held() {
    let (cluster, mut client) = untidied();
    let mut holder = hold_snapshot(&cluster, "pending");
    let costs = rounds(&mut client, "a", 300);
    assert_eq!(costlier(&costs), Vec::<String>::new());
    // Vacuum could remove none of it.
    client.batch_execute("VACUUM pending").unwrap();
    let seen = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'pending'";
    eventually_or_tell("the rows that were taken to be there still", || {
        let dead = number(&mut client, seen);
        if dead >= 60_000 { Ok(()) } else { Err(dead) }
    });
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Whether a group is free is looked up for that group, not among all former claims.
#[test]
fn i4_looking_up_free_groups_reads_as_many_pages_under_a_held_snapshot() {
    const ROUNDS: usize = 30;
    let (cluster, mut client) = untidied();
    let mut holder = cluster.connect("app");
    let mut costs = Vec::new();
    for round in 0..ROUNDS {
        client
            .batch_execute(&format!(
                "INSERT INTO outbox (kind, recipients, subject, body_text, group_key) \
                 SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', md5('{round} ' || i) FROM generate_series(1, 250) i; \
                 SELECT count(*) FROM mailroom_claim(250, '1 h', 'me'); \
                 SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed'), claimant => 'me')"
            ))
            .unwrap();
        if round == 1 {
            // The statistics contain no claim.
            client.batch_execute("ANALYZE outbox").unwrap();
            holder
                .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox")
                .unwrap();
        }
        costs.push(pages(
            &mut client,
            "SELECT cardinality(_free_groups(ARRAY(SELECT md5(i::text) FROM generate_series(1, 10) i)))",
        ));
    }
    let (early, late) = (costs[7], costs[ROUNDS - 1]);
    assert!(late <= 2 * early, "{early} pages, later {late}: {costs:?}");
    holder.batch_execute("ROLLBACK").unwrap();
}

/// A statement about no row reads no index of the outbox: for an empty array, the planner accepts any partial index, and
/// scans all of it.
#[test]
fn i4_an_empty_list_costs_no_scan_while_a_snapshot_is_held() {
    const CALLS: [&str; 9] = [
        "SELECT pg_temp.run('DELETE FROM tokens WHERE id < 0')",
        "SELECT pg_temp.run('DELETE FROM accounts WHERE id < 0')",
        "SELECT mailroom_revoke(-1)",
        "SELECT mailroom_retry_failed(kind => 'none')",
        "SELECT mailroom_mark_sent_many('{}')",
        "SELECT mailroom_mark_error_many('{}', '{}')",
        "SELECT mailroom_release_many('{}')",
        "SELECT mailroom_extend_many('{}')",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', item_key => 'item', on_conflict => 'replace')",
    ];
    let (cluster, mut client) = untidied();
    // To the planner, the indexes of groups are the smallest, as no group waits.
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, send_at) \
             SELECT 'own', '{a@example.com}', 'Hello', 'Text', now() + interval '1 year' FROM generate_series(1, 20000) i; \
             INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
             CREATE FUNCTION pg_temp.run(statement text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE statement; END'",
        )
        .unwrap();
    client.batch_execute("VACUUM (ANALYZE) outbox").unwrap();
    let mut holder = hold_snapshot(&cluster, "outbox");
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, group_key) \
             SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'g' || i FROM generate_series(1, 5000) i; \
             SELECT count(*) FROM mailroom_claim(5000, '1 h', 'me'); \
             SELECT count(*) FROM mailroom_claim(5000, '1 h', 'me'); \
             SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed'), claimant => 'me')",
        )
        .unwrap();
    // EXPLAIN counts the pages of triggers only within a function. The first calls fill the session's caches.
    let looked = CALLS.map(|call| [(); 3].map(|()| pages(&mut client, call))[2]);
    let costly: Vec<_> = CALLS
        .iter()
        .zip(looked)
        .filter(|(_, pages)| *pages > 100)
        .collect();
    assert!(costly.is_empty(), "{costly:?}");
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Mail that waits for one transport costs claims for other transports nothing.
#[test]
fn i4_a_claim_reads_as_many_pages_while_mail_waits_for_another_transport() {
    const CALLS: [&str; 6] = [
        "SELECT id FROM mailroom_claim(100, '1 h', 'me')",
        "SELECT id FROM mailroom_claim(100, '1 h', 'me', '{relay}')",
        "SELECT id FROM mailroom_claim(100, '1 h', 'me', '{relay,none}')",
        "SELECT id FROM mailroom_claim_group(100, '1 h', 'me', transports => '{relay}')",
        "SELECT id FROM mailroom_claim_group(100, '1 h', 'me', 'g', '{relay}')",
        "SELECT mailroom_next_due('{none,later}')",
    ];
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "autovacuum = off"]);
    let costs = [0, 100_000].map(|others| {
        let mut client = cluster.create_database(&format!("app{others}"));
        client
            .batch_execute("SET client_min_messages = error; SET jit = off")
            .unwrap();
        // Before, among and after the other mail, and a group of which more mail waits for another transport.
        for (rows, columns) in [
            (others / 2, "'slow', i % 10 - 5, NULL, now() - interval '1 h'"),
            (others / 4, "'slow', -100, 'g', now() - interval '1 h'"),
            (1_000, "CASE i % 2 WHEN 0 THEN '' ELSE 'relay' END, i % 4, CASE WHEN i % 10 = 1 THEN 'g' END, now() - interval '1 h'"),
            (100, "'later', 0, NULL, now() + interval '1 h'"),
            (others / 4, "'slow', i % 10 - 5, NULL, now() - interval '2 h'"),
        ] {
            client
                .batch_execute(&format!(
                    "INSERT INTO outbox (kind, recipients, subject, body_text, transport, priority, group_key, send_at) \
                     SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', {columns} FROM generate_series(1, {rows}) i"
                ))
                .unwrap();
        }
        client.batch_execute("VACUUM (ANALYZE)").unwrap();
        CALLS.map(|call| {
            // Each call is rolled back, so that all find the same. The first ones fill the session's caches.
            let mut calls = [(); 5].map(|()| {
                client.batch_execute("BEGIN").unwrap();
                let looked = pages(&mut client, call);
                client.batch_execute("ROLLBACK").unwrap();
                looked
            });
            calls[2..].sort_unstable();
            calls[3]
        })
    });
    for (call, (without, with)) in CALLS.iter().zip(costs[0].into_iter().zip(costs[1])) {
        // An index of a hundred times as many rows may have one level more, which costs a page per search.
        assert!(
            with <= without + without / 2 + 30,
            "{call}: {without} pages, {with} beside much other mail"
        );
    }
}

/// The pages that it takes to answer 100 requests for addresses of accounts, and 100 for others.
fn answers(client: &mut Client, round: usize) -> [u64; 2] {
    ["holder", "stranger"].map(|of| {
        client
            .batch_execute(&format!(
                "SELECT mailroom_request_activation('{of}{round}-' || i || '@example.com') FROM generate_series(1, 100) i"
            ))
            .unwrap();
        pages(client, "SELECT mailroom_answer_requests(100)")
    })
}

#[test]
fn i4_no_operation_looks_at_more_pages_where_there_is_much_more() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "autovacuum = off"]);
    let mut clients = [("few", 2_000), ("many", 40_000)].map(|(name, accounts)| {
        let mut client = cluster.create_database(name);
        client
            .batch_execute("SET client_min_messages = error; SET jit = off")
            .unwrap();
        crate::volume::fill(&mut client, accounts);
        client
    });
    let functions = clients[0]
        .query(
            "SELECT DISTINCT proname::text FROM pg_proc WHERE proname LIKE 'mailroom%' ORDER BY 1",
            &[],
        )
        .unwrap();
    let mut not_tried: Vec<String> = functions.iter().map(|row| row.get(0)).collect();
    not_tried.retain(|name| !crate::volume::OPERATIONS.iter().any(|one| one.calls(name)));
    // They read no table of the extension, or what mailroom_report and mailroom_suppress do.
    assert_eq!(
        not_tried,
        [
            "mailroom_address_key",
            "mailroom_receive",
            "mailroom_rotate_key",
            "mailroom_unsubscribe",
            "mailroom_unsubscribe_url",
            "mailroom_verify",
            "mailroom_version",
            "mailroom_wake_worker"
        ]
    );
    let costlier: Vec<String> = crate::volume::OPERATIONS
        .iter()
        .enumerate()
        .filter_map(|(number, operation)| {
            let [few, many] = clients.each_mut().map(|client| {
                // The first calls fill the session's caches. The mean, because every second claim of a group may sweep.
                let calls =
                    [(); 7].map(|()| crate::volume::once(client, number, crate::volume::pages));
                calls[2..].iter().sum::<u64>() / 5
            });
            // An index of twenty times as many rows may have two levels instead of one, which costs a page per search.
            // A scan of all rows would cost twenty times as much. Status counts up to 10,000 rows, and next_due looks at
            // up to 100, of which the small database has ten of a priority.
            let most = 3 * few
                + match operation.name {
                    "status" | "problems" => 10_000,
                    "next_due" => 100,
                    _ => 0,
                };
            let name = operation.name;
            (many > most).then(|| format!("{name}: {few} pages, {many} where there is more"))
        })
        .collect();
    assert_eq!(costlier, Vec::<String>::new());
}

/// ANALYZE of an empty table keeps what it knew of rows with low ids. A plan that joins would read all tokens up to those
/// that wait.
#[test]
fn i4_status_looks_at_few_tokens_although_statistics_are_stale() {
    let (_cluster, mut client) = untidied();
    for statement in [
        "SET session_replication_role = replica",
        "INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 1000) i",
        "INSERT INTO tokens (account, action, expires_at) SELECT i, 'activation', 4102444800 FROM generate_series(1, 1000) i",
        "INSERT INTO pending (lane, token_id) SELECT 1, id FROM tokens",
        "ANALYZE pending",
        "DELETE FROM pending",
        "VACUUM ANALYZE pending",
        "INSERT INTO tokens (account, action, expires_at) \
         SELECT i % 1000 + 1, 'activation', 4102444800 FROM generate_series(1, 100000) i",
        "VACUUM ANALYZE tokens",
        "INSERT INTO pending (lane, token_id) SELECT 1, max(id) FROM tokens",
        "SELECT count(*) FROM mailroom_status()",
    ] {
        client.batch_execute(statement).unwrap();
    }
    let pages = pages(&mut client, "SELECT * FROM mailroom_status()");
    assert!(pages < 1000, "{pages} pages");
}

#[test]
fn i4_requests_are_answered_by_as_many_pages_among_many_accounts() {
    let (_cluster, mut client) = untidied();
    let mut costs = Vec::new();
    for (round, accounts) in [200, 200, 40_000].into_iter().enumerate() {
        client
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login) \
                 SELECT 'holder{round}-' || i || '@example.com', '{round}-' || i FROM generate_series(1, {accounts}) i; \
                 DELETE FROM pending; UPDATE tokens SET created_at = 0, revoked_at = 0; ANALYZE"
            ))
            .unwrap();
        // Answered requests are not what this is about.
        client.batch_execute("VACUUM link_requests").unwrap();
        costs.push(answers(&mut client, round));
    }
    // The first round filled the session's caches. With a hundred times as many accounts an index has a level more,
    // which costs a page per search: a holder of an account takes eight searches, another address one. One more finds
    // the request that is deleted, whose index grows as well.
    for (looks, (few, many)) in [8, 2].into_iter().zip(costs[1].into_iter().zip(costs[2])) {
        assert!(many <= few + looks * 100, "{costs:?}");
    }
}
