//! Invariants of the design that no other test shows by what the server itself says of sessions, locks, statements and
//! pages: I4, I5, I6 and I9. The others carry their numbers where they are tested.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use crate::cluster::{
    Cluster, bin_directory, eventually, eventually_or_tell, find_worker, has_contrib, number,
};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};
use postgres::Client;

// ---------------------------------------------------------------- I4

/// Pages that a statement looks at.
fn pages(client: &mut Client, statement: &str) -> u64 {
    crate::volume::pages(client, statement).unwrap()
}

/// What is done with a batch of a hundred, in an order that leaves nothing over.
const STEPS: [(&str, &str); 4] = [
    ("collect", "SELECT mailroom_collect(100)"),
    (
        "claim",
        "CREATE TEMP TABLE held AS SELECT id FROM mailroom_claim(100, '1 h', 'me')",
    ),
    (
        "settle",
        "SELECT mailroom_mark_sent_many(array_agg(id), NULL, 'me') FROM held",
    ),
    ("dequeue", "SELECT count(*) FROM mailroom_dequeue(100)"),
];

/// Pages that each step took, in each of so many rounds.
fn rounds(client: &mut Client, prefix: &str, rounds: usize) -> Vec<BTreeMap<&'static str, u64>> {
    (0..rounds)
        .map(|round| {
            client
                .execute(
                    "INSERT INTO accounts (email, login) \
                     SELECT $1 || i || '@example.com', $1 || i FROM generate_series(1, 200) i",
                    &[&format!("{prefix}{round}-")],
                )
                .unwrap();
            let costs = STEPS
                .iter()
                .map(|(name, statement)| (*name, pages(client, statement)))
                .collect();
            client.batch_execute("DROP TABLE held").unwrap();
            costs
        })
        .collect()
}

/// Which batches of the last rounds cost more pages than those of the first ones, and how many more.
///
/// Now and then a session looks through the whole queue, as often as the time it takes for that allows, which this is
/// not about: hence the medians.
fn costlier(rounds: &[BTreeMap<&'static str, u64>]) -> Vec<String> {
    let median = |rounds: &[BTreeMap<&'static str, u64>], step: &str| {
        let mut costs: Vec<u64> = rounds.iter().map(|round| round[step]).collect();
        costs.sort_unstable();
        costs[costs.len() / 2]
    };
    STEPS
        .iter()
        .filter_map(|(step, _)| {
            // The very first ones fill the session's caches.
            let early = median(&rounds[5..16], step);
            let late = median(&rounds[rounds.len() - 51..], step);
            // A fifth more is what an index costs that has grown. One look at each row that was processed by then would
            // be a third more in the largest of these, and as much again in the smallest.
            (late * 5 > early * 6).then(|| format!("{step}: {early} pages, later {late}"))
        })
        .collect()
}

/// A database without a worker, and nothing that would tidy up.
fn untidied() -> (Cluster, Client) {
    let (cluster, mut client) =
        Cluster::start_with_app(&["shared_preload_libraries = ''", "autovacuum = off"]);
    client
        .batch_execute("SET client_min_messages = error; SET jit = off")
        .unwrap();
    (cluster, client)
}

#[test]
fn i4_a_batch_looks_at_as_many_pages_behind_many_processed_rows() {
    let (_cluster, mut client) = untidied();
    let costs = rounds(&mut client, "a", 300);
    assert_eq!(costlier(&costs), Vec::<String>::new());
}

#[test]
fn i4_a_batch_looks_at_as_many_pages_while_a_snapshot_is_held() {
    let (cluster, mut client) = untidied();
    let mut holder = cluster.connect("app");
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pending")
        .unwrap();
    let costs = rounds(&mut client, "a", 300);
    assert_eq!(costlier(&costs), Vec::<String>::new());
    // None of it could have been tidied up.
    client.batch_execute("VACUUM pending").unwrap();
    let seen = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'pending'";
    eventually_or_tell("the rows that were taken to be there still", || {
        let dead = number(&mut client, seen);
        if dead >= 60_000 { Ok(()) } else { Err(dead) }
    });
    holder.batch_execute("ROLLBACK").unwrap();
}

/// What the worker does besides, and a purge, with a hundred mails more in each round that were claimed and settled.
#[test]
fn i4_upkeep_looks_at_as_many_pages_while_a_snapshot_is_held() {
    const ROUNDS: usize = 80;
    let (cluster, mut client) = untidied();
    let mut holder = cluster.connect("app");
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox")
        .unwrap();
    client.batch_execute("SET mailroom.retention = 0").unwrap();
    let steps = [
        "SELECT _maintain_outbox(false)",
        "SELECT mailroom_purge(250)",
    ];
    let costs: Vec<[u64; 2]> = (0..ROUNDS)
        .map(|_| {
            client
                .batch_execute(
                    "INSERT INTO outbox (kind, recipients, subject, body_text) \
                     SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 250); \
                     SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM mailroom_claim(250, '1 ms', 'me')), claimant => 'me')",
                )
                .unwrap();
            // Positions stay a tenth of a second behind the present, and one round of all is within it.
            std::thread::sleep(std::time::Duration::from_millis(120));
            // The first call has something to do; and as often as that may take a twentieth of the time one starts at the
            // beginning, not twice in a row.
            steps.map(|statement| {
                let calls = [0; 3].map(|_| pages(&mut client, statement));
                calls.into_iter().min().unwrap()
            })
        })
        .collect();
    assert_eq!(
        number(&mut client, "SELECT count(*) FROM outbox"),
        0,
        "all were purged"
    );
    for (step, statement) in steps.iter().enumerate() {
        let median = |rounds: &[[u64; 2]]| {
            let mut costs: Vec<u64> = rounds.iter().map(|round| round[step]).collect();
            costs.sort_unstable();
            costs[costs.len() / 2]
        };
        let (early, late) = (median(&costs[5..16]), median(&costs[ROUNDS - 31..]));
        assert!(
            late * 5 <= early * 6,
            "{statement}: {early} pages, later {late}"
        );
    }
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Whether a group is free is looked up for that group, and not among all claims that there were.
#[test]
fn i4_whether_groups_are_free_is_looked_up_in_as_many_pages_while_a_snapshot_is_held() {
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
            // Statistics know of no claim.
            client.batch_execute("ANALYZE outbox").unwrap();
            holder
                .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox")
                .unwrap();
        }
        costs.push(pages(
            &mut client,
            "SELECT cardinality(free) FROM _free_groups(ARRAY(SELECT md5(i::text) FROM generate_series(1, 10) i), 100)",
        ));
    }
    let (early, late) = (costs[7], costs[ROUNDS - 1]);
    assert!(late <= 2 * early, "{early} pages, later {late}: {costs:?}");
    holder.batch_execute("ROLLBACK").unwrap();
}

/// Mail that waits for one transport costs nothing to those who claim others.
#[test]
fn i4_a_claim_of_one_transport_looks_at_as_many_pages_while_much_mail_waits_for_another() {
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
        // In front of, among and behind the others, and a group of which more waits for another transport.
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
            // Taken back, so that each finds the same; the first ones fill the session's caches.
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
        // An index of a hundred times as many rows may have a level more, which is a page for each look.
        assert!(
            with <= without + without / 2 + 30,
            "{call}: {without} pages, {with} beside much other mail"
        );
    }
}

/// While nothing can be tidied up, what came in behind all positions is found in looks of which none is a look at all: mail
/// of a known and of a new priority, and a claim that lapsed long ago.
#[test]
fn i4_what_came_in_late_is_found_piece_by_piece_while_a_snapshot_is_held() {
    const ROUNDS: i64 = 60;
    let (cluster, mut client) = untidied();
    let mut holder = cluster.connect("app");
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox")
        .unwrap();
    let claim = "SELECT id FROM mailroom_claim(1000, '1 ms', 'me')";
    // In another order than that in which they lie.
    client
        .batch_execute(&format!(
            "INSERT INTO outbox (kind, recipients, subject, body_text, send_at) \
             SELECT 'own', '{{a@example.com}}', 'Hello', 'Text', now() - random() * interval '1 hour' \
             FROM generate_series(1, {ROUNDS} * 1000)"
        ))
        .unwrap();
    for round in 0..ROUNDS {
        client
            .batch_execute(&format!(
                "SELECT mailroom_mark_sent_many(ARRAY({claim}), claimant => 'me')"
            ))
            .unwrap();
        // A session takes looks at all for dear after two of them that were. They may take a twentieth of the time, so
        // that a fast machine would come to one alone while there is enough to look at.
        if round >= ROUNDS / 2 {
            std::thread::sleep(std::time::Duration::from_millis(60));
        }
    }
    // A look at all is a look at each of them.
    let all = 1_000 * ROUNDS.unsigned_abs();
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
    let mut most = 0;
    eventually_or_tell("all that came in late to be claimed", || {
        most = most.max(pages(
            &mut client,
            &format!("INSERT INTO found {}", claim.replace("1 ms", "1 h")),
        ));
        match number(&mut client, "SELECT count(*) FROM found") {
            4 => Ok(()),
            found => Err(found),
        }
    });
    assert!(most < all / 4, "a claim looked at {most} pages");
    holder.batch_execute("ROLLBACK").unwrap();
}

/// What may not be deleted hides nothing from a purge, in a session that never purged before either; and where there is
/// nothing to delete it says so at once.
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
    // The mail at once; the token behind 2500 that last for longer with the third; then it has come to the end.
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

/// The pages that it takes to answer requests for addresses of accounts, and for others.
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
    let costlier: Vec<String> = crate::volume::OPERATIONS
        .iter()
        .enumerate()
        .filter_map(|(number, operation)| {
            let [few, many] = clients.each_mut().map(|client| {
                // The first calls fill the session's caches.
                let mut calls =
                    [(); 7].map(|()| crate::volume::once(client, number, crate::volume::pages));
                calls[2..].sort_unstable();
                calls[4]
            });
            // An index of twenty times as many rows may have two levels for one, which is a page for each look. Looking at
            // all there is of anything would be twenty times as much. Status counts to 10,000.
            let most = 3 * few
                + if operation.name == "status" {
                    10_000
                } else {
                    0
                };
            let name = operation.name;
            (many > most).then(|| format!("{name}: {few} pages, {many} where there is more"))
        })
        .collect();
    assert_eq!(costlier, Vec::<String>::new());
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
        // Those that were answered are another matter.
        client.batch_execute("VACUUM link_requests").unwrap();
        costs.push(answers(&mut client, round));
    }
    // The first filled the session's caches. With a hundred times as many accounts an index has a level more, which is a
    // page for each look: eight of them to answer a holder of an account, one to find that there is none.
    for (looks, (few, many)) in [8, 1].into_iter().zip(costs[1].into_iter().zip(costs[2])) {
        assert!(many <= few + looks * 100, "{costs:?}");
    }
}

// ---------------------------------------------------------------- I5

/// What mailroom's processes have open, as the server tells.
fn open_transactions(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT concat_ws(' ', backend_type, 'transaction since', xact_start, 'xid', backend_xid, 'xmin', backend_xmin) \
             FROM pg_stat_activity WHERE backend_type LIKE 'mailroom%' \
             AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Waits until mailroom has no transaction open. One that lasted as long as the requests that are under way would be
/// there for longer than this waits.
fn wait_for_no_transaction(client: &mut Client) {
    eventually_or_tell("a moment without a transaction", || {
        let open = open_transactions(client);
        if open.is_empty() {
            Ok(())
        } else {
            Err(open.join(", "))
        }
    });
}

#[test]
fn i5_no_transaction_is_open_during_network_io() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let settings = ["transport.timeout = '10min'", "mailroom.lease = '1h'"];
    let mut post = Post::start(&receiver, &settings);
    let mut client = post.cluster.connect("app");

    // A transaction of the worker's is seen where it has one: while it waits for a lock.
    let mut holder = post.cluster.connect("app");
    holder.batch_execute("BEGIN; LOCK TABLE outbox").unwrap();
    client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the worker's transaction", || {
        (!open_transactions(&mut client).is_empty()).then_some(())
    });
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_no_transaction(&mut client);

    // The first requests have no answer, which the later ones join.
    for requests in 1..=10 {
        post.send(1);
        eventually("the request to be under way", || {
            (receiver.open() == requests).then_some(())
        });
        wait_for_no_transaction(&mut client);
    }
    assert_eq!(post.count("state = 'claimed'"), 10);
    // These have the beginning of one.
    receiver
        .react(|_| Reaction::Stall(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc".to_vec()));
    for requests in 11..=15 {
        post.send(1);
        eventually("the request to be under way", || {
            (receiver.open() == requests).then_some(())
        });
        wait_for_no_transaction(&mut client);
    }
    assert_eq!(receiver.requests(), 15);
}

// ---------------------------------------------------------------- I6

/// What waits for a standby, which a NOTIFY that writes nothing besides does not.
const NOTIFY: &str =
    "SELECT pg_notify('elsewhere', ''), pg_logical_emit_message(true, 'mailroom', 'x')";

/// What becomes of a statement while another session holds the lock of NOTIFY and waits.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Returned,
    WaitsForTheLock,
}

/// The lock that each transaction with a NOTIFY takes for its commit, one after the other in the whole cluster.
const NOTIFY_LOCK: &str =
    "locktype = 'object' AND database = 0 AND objid = 0 AND classid = 'pg_database'::regclass";

/// Runs a statement in a session of its own that waits for no standby; the session comes along if it waits.
fn outcome(cluster: &Cluster, observer: &mut Client, statement: &str) -> (Outcome, JoinHandle<()>) {
    let mut session = cluster.connect("app");
    session
        .batch_execute("SET synchronous_commit = local")
        .unwrap();
    let pid = number(&mut session, "SELECT pg_backend_pid()");
    let text = statement.to_owned();
    let thread = std::thread::spawn(move || {
        session
            .batch_execute(&text)
            .unwrap_or_else(|error| panic!("{text}: {error:?}"));
    });
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE pid = {pid} AND NOT granted AND {NOTIFY_LOCK}"
    );
    let outcome = eventually_or_tell(statement, || {
        if thread.is_finished() {
            Ok(Outcome::Returned)
        } else if number(observer, &waits) == 1 {
            Ok(Outcome::WaitsForTheLock)
        } else {
            observer
                .query_one(
                    "SELECT concat_ws(' ', state, wait_event_type, wait_event) FROM pg_stat_activity WHERE pid::bigint = $1",
                    &[&pid],
                )
                .map_or_else(
                    |error| Err(error.to_string()),
                    |row| Err(row.get::<_, String>(0)),
                )
        }
    });
    (outcome, thread)
}

/// With a worker, a commit needs no lock of the whole cluster. A session that waits for a standby that never comes
/// while it holds the one of NOTIFY stops whoever NOTIFYs, and nobody else.
#[test]
fn i6_a_commit_takes_no_lock_of_the_cluster() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = 0",
        "mailroom.request_interval = 0",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "SET synchronous_commit = local; \
             INSERT INTO accounts (email, login, status) VALUES ('in@use.example', 'used', 'active'); \
             SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '1 day')",
        )
        .unwrap();
    client
        .batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        .unwrap();
    cluster.reload();
    let held = format!(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
         WHERE a.wait_event = 'SyncRep' AND l.granted AND {NOTIFY_LOCK}"
    );
    // Commits do not wait until each process has read the new setting.
    let mut waiting = eventually("a session that waits while it holds the lock", || {
        let mut session = cluster.connect("app");
        let thread = std::thread::spawn(move || session.batch_execute(NOTIFY).unwrap());
        eventually("the session to wait or to be through", || {
            if thread.is_finished() {
                Some(false)
            } else {
                (number(&mut client, &held) == 1).then_some(true)
            }
        })
        .then_some(vec![thread])
    });

    for statement in [
        "INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one')",
        "INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 1000) i",
        "UPDATE accounts SET status = 'suspended' WHERE login = '1'",
        "INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE login = 'used'",
        "SELECT mailroom_request_recovery('in@use.example')",
        "SELECT mailroom_request_recovery('un@known.example')",
        "SELECT mailroom_send('b@example.com', 'Now', 'Text')",
        "SELECT mailroom_reschedule(id, now()) FROM outbox WHERE subject = 'Later'",
        "UPDATE tokens SET revoked_at = extract(epoch FROM now()) WHERE account = (SELECT id FROM accounts WHERE login = 'used')",
        "SELECT FROM mailroom_claim(1, '1 h', 'me')",
        "DELETE FROM accounts WHERE login = '2'",
    ] {
        let (outcome, thread) = outcome(&cluster, &mut client, statement);
        assert_eq!(outcome, Outcome::Returned, "{statement}");
        thread.join().unwrap();
    }
    // What the others would do without a worker: so the lock is held, and this test can fail.
    let (outcome, thread) = outcome(
        &cluster,
        &mut client,
        "SET mailroom.notify = 'commit'; \
         INSERT INTO accounts (email, login) VALUES ('last@example.com', 'last')",
    );
    assert_eq!(outcome, Outcome::WaitsForTheLock);
    waiting.push(thread);
    assert_eq!(number(&mut client, &held), 1, "it was held all the time");

    client
        .batch_execute("ALTER SYSTEM RESET synchronous_standby_names")
        .unwrap();
    cluster.reload();
    for thread in waiting {
        thread.join().unwrap();
    }
    // And the worker does what it was woken for.
    eventually("the queue to empty", || {
        (number(&mut client, "SELECT count(*) FROM pending") == 0).then_some(())
    });
}

// ---------------------------------------------------------------- I9

/// How often statements of this database were run since they were last forgotten: those that were sent, or all.
fn statements(observer: &mut Client, which: &str) -> BTreeMap<String, i64> {
    observer
        .query(
            &format!(
                "SELECT s.query, sum(s.calls)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid \
                 WHERE d.datname = 'app' AND {which} GROUP BY s.query"
            ),
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

/// How often the threads of a process have gone to sleep.
fn sleeps(pid: i32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
        .map(|status| {
            let line = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches:"))
                .unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        })
        .sum()
}

/// Whether it delivers or not, an idle worker does nothing but to look whether there is something, once in each
/// `mailroom.poll_interval`. The looks themselves are the clock of this test.
#[test]
fn i9_an_idle_worker_that_delivers_runs_nothing_but_the_poll() {
    const LOOKS: i64 = 20;
    if !has_contrib(&bin_directory("MAILROOM_PG_CONFIG"), "pg_stat_statements") {
        return;
    }
    let receiver = Receiver::start(|request| {
        if request.says("later") {
            Reaction::Answer(503, "retry-after: 86400\r\n".to_owned(), String::new())
        } else {
            status(200)
        }
    });
    let settings = [
        "shared_preload_libraries = 'mailroom, pg_stat_statements'",
        "pg_stat_statements.track = all",
        "mailroom.poll_interval = '200ms'",
        "mailroom.batch_timeout = 0",
        "transport.rate = 1000 messages/s",
        "autovacuum = off",
    ];
    let mut post = Post::start(&receiver, &settings);
    let mut observer = post.cluster.connect("postgres");
    observer
        .batch_execute("CREATE EXTENSION pg_stat_statements")
        .unwrap();
    // It has delivered all sorts of mail, and there is mail for other days.
    post.client
        .batch_execute(
            "INSERT INTO budgets (period, amount) VALUES ('month', 1000000); \
             INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 50) i; \
             INSERT INTO outbox (kind, recipients, subject, body_text, send_at) \
             SELECT 'own', '{a@example.com}', 'Next year', 'Text', now() + interval '1 year' FROM generate_series(1, 50000)",
        )
        .unwrap();
    post.send(100);
    post.wait_for("state = 'sent'", 150);
    let worker = post.worker();
    let Post {
        client, cluster, ..
    } = post;
    drop(client);

    let poll = include_str!("../../sql/queries/poll.sql");
    let (_, poll) = poll.split_once("FROM ").unwrap();
    let looks = |observer: &mut Client, count: i64| {
        observer
            .batch_execute("SELECT pg_stat_statements_reset()")
            .unwrap();
        eventually_or_tell("the worker to look a few times", || {
            let ran = statements(observer, "toplevel");
            let looks: i64 = ran
                .iter()
                .filter(|(query, _)| query.contains(poll.trim()))
                .map(|(_, calls)| *calls)
                .sum();
            if looks >= count {
                Ok(looks)
            } else {
                Err(format!("{ran:?}"))
            }
        })
    };
    // What it had to do after the last mail is over by then.
    looks(&mut observer, LOOKS);
    let before = sleeps(worker);
    let looked = looks(&mut observer, LOOKS);
    let slept = sleeps(worker) - before;
    // A look asks what there is and what may go, and, as it delivers, for mail and for what the budgets leave of it.
    let sent = statements(&mut observer, "toplevel");
    assert!(sent.len() <= 4, "{sent:#?}");
    for (query, calls) in sent {
        assert!(
            calls <= looked + 1,
            "{calls} times in {looked} looks: {query}"
        );
    }
    // Neither does the thread that sends wake up in between.
    assert!(
        slept <= 4 * looked.unsigned_abs(),
        "its threads went to sleep {slept} times in {looked} looks"
    );
    let mut client = cluster.connect("app");
    assert_eq!(find_worker(&mut client), Some(worker));
}
