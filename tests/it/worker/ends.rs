//! Ends of the worker and of the server, and what the worker may do and logs.

use std::time::Duration;

use super::{insert_accounts, wait_for_lock, wait_for_outbox};
use crate::cluster::{Cluster, Stop, eventually, find_worker, number, signal};
use postgres::Client;

/// Waits for a worker other than `old`; returns a connection to its database, and its process id.
fn next_worker(cluster: &Cluster, database: &str, old: i32) -> (Client, i32) {
    eventually("the next worker", || {
        let mut client = cluster.try_connect(database, "postgres").ok()?;
        let row = client
            .query_opt(
                "SELECT pid FROM pg_stat_activity \
                 WHERE backend_type = 'mailroom worker' AND datname = current_database() AND pid <> $1",
                &[&old],
            )
            .ok()??;
        Some((client, row.get(0)))
    })
}

#[test]
fn killed_in_mid_batch_nothing_is_lost_or_doubled() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 50"]);
    let mut worker = cluster.worker("app");
    for round in 0..5 {
        let before = number(&mut client, "SELECT count(*) FROM outbox");
        insert_accounts(&mut client, &format!("r{round}-"), 2000);
        eventually("the worker to be at it", || {
            (number(&mut client, "SELECT count(*) FROM outbox") > before).then_some(())
        });
        signal("KILL", worker);
        (client, worker) = next_worker(&cluster, "app", worker);
    }
    wait_for_outbox(&mut client, 10_000);
    assert_eq!(
        number(&mut client, "SELECT count(DISTINCT token_id) FROM outbox"),
        10_000
    );
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 0);
    assert_eq!(
        number(&mut client, "SELECT sum(collected) FROM job_runs"),
        10_000
    );
}

#[test]
fn an_immediate_shutdown_loses_nothing() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 10", "fsync = on"]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", 3000);
    eventually("the worker to be at it", || {
        (number(&mut client, "SELECT count(*) FROM outbox") > 0).then_some(())
    });
    cluster.stop_server(Stop::Immediate);
    cluster.start_server();
    let mut client = cluster.connect("app");
    wait_for_outbox(&mut client, 3000);
    assert_eq!(
        number(&mut client, "SELECT count(DISTINCT token_id) FROM outbox"),
        3000
    );
}

#[test]
fn terminated_it_comes_back() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    let first = cluster.worker("app");
    client
        .execute("SELECT pg_terminate_backend($1)", &[&first])
        .unwrap();
    let (mut client, _) = next_worker(&cluster, "app", first);
    insert_accounts(&mut client, "a", 1);
    wait_for_outbox(&mut client, 1);
    let log = cluster.log();
    assert!(
        !log.contains("ERROR") && !log.contains("FATAL") && !log.contains("reinitializing"),
        "{log}"
    );
}

#[test]
fn a_worker_without_transports_forgets_those_of_earlier_ones() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    let first = cluster.worker("app");
    // What a worker leaves that is killed, if the file with its transports is removed afterwards.
    client
        .batch_execute("SELECT _publish_transports('mailroom worker/1/1.1', '[{\"name\": \"main\", \"provider\": \"log\"}]')")
        .unwrap();
    client
        .execute("SELECT pg_terminate_backend($1)", &[&first])
        .unwrap();
    let (mut client, _) = next_worker(&cluster, "app", first);
    eventually("its transports to be gone", || {
        (number(&mut client, "SELECT count(*) FROM mailroom_transports") == 0).then_some(())
    });
}

#[cfg(any(feature = "pg17", feature = "pg18"))]
#[test]
fn the_end_that_the_server_sets_to_transactions_is_not_for_it() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    let mut holder = cluster.connect("app");
    client
        .batch_execute("ALTER DATABASE app SET transaction_timeout = '500ms'")
        .unwrap();
    let first = cluster.worker("app");
    client
        .execute("SELECT pg_terminate_backend($1)", &[&first])
        .unwrap();
    let (mut client, worker) = next_worker(&cluster, "app", first);
    holder.batch_execute("BEGIN; LOCK TABLE outbox").unwrap();
    insert_accounts(&mut client, "a", 1);
    wait_for_lock(&mut client, worker);
    std::thread::sleep(Duration::from_secs(1));
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 1);
    assert_eq!(cluster.worker("app"), worker);
}

#[test]
fn cancelled_while_it_waits_it_stays() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    let worker = cluster.worker("app");
    let workers = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity \
                   WHERE backend_type IN ('mailroom worker', 'mailroom launcher')";
    let before: String = client.query_one(workers, &[]).unwrap().get(0);
    for round in 1..=20 {
        client
            .execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^mailroom'",
                &[],
            )
            .unwrap();
        insert_accounts(&mut client, &format!("a{round}-"), 1);
        wait_for_outbox(&mut client, round);
    }
    assert_eq!(cluster.worker("app"), worker);
    let after: String = client.query_one(workers, &[]).unwrap().get(0);
    assert_eq!(after, before);
    let log = cluster.log();
    assert!(!log.contains("ERROR") && !log.contains("FATAL"), "{log}");
}

#[test]
fn a_stop_does_not_wait_for_a_lock_that_the_worker_waits_for() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    let worker = cluster.worker("app");
    insert_accounts(&mut client, "a", 1);
    wait_for_outbox(&mut client, 1);
    let mut holder = cluster.connect("app");
    holder.batch_execute("BEGIN; LOCK TABLE outbox").unwrap();
    insert_accounts(&mut client, "b", 1);
    wait_for_lock(&mut client, worker);
    let told = std::time::Instant::now();
    client
        .execute("SELECT pg_terminate_backend($1)", &[&worker])
        .unwrap();
    eventually("the worker to be gone", || {
        find_worker(&mut client)
            .is_none_or(|pid| pid != worker)
            .then_some(())
    });
    // After five seconds the worker would stop waiting for the lock.
    assert!(
        told.elapsed() < Duration::from_secs(4),
        "{:?}",
        told.elapsed()
    );
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 2);
}

#[test]
fn a_fast_shutdown_under_load_is_prompt() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 5"]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", 20_000);
    eventually("the worker to be at it", || {
        (number(&mut client, "SELECT count(*) FROM outbox") > 0).then_some(())
    });
    // pg_ctl would wait for a minute, and fail if the worker ignored the stop.
    let took = cluster.stop_server(Stop::Fast);
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(cluster.log().contains("mailroom worker stopped"));
    cluster.start_server();
    let mut client = cluster.connect("app");
    wait_for_outbox(&mut client, 20_000);
}

#[test]
fn the_worker_has_no_rights_that_a_hostile_trigger_could_use() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE TABLE tried (what text, outcome text); GRANT INSERT ON tried TO PUBLIC; \
             CREATE ROLE mallory LOGIN; GRANT TRIGGER ON outbox TO mallory; GRANT CREATE ON SCHEMA public TO mallory",
        )
        .unwrap();
    cluster
        .connect_as("app", "mallory")
        .batch_execute(
            "CREATE FUNCTION climb() RETURNS trigger LANGUAGE plpgsql AS $f$ \
             DECLARE attempt text; \
             BEGIN \
                FOREACH attempt IN ARRAY ARRAY['ALTER ROLE mallory SUPERUSER', 'RESET ROLE', 'RESET SESSION AUTHORIZATION', \
                    'SET ROLE postgres', 'SET SESSION AUTHORIZATION postgres', 'CREATE TABLE mine ()', 'SELECT pg_read_file(''mailroom.key'')'] LOOP \
                    BEGIN \
                        EXECUTE attempt; \
                        INSERT INTO public.tried VALUES (attempt, 'worked as ' || current_user); \
                    EXCEPTION WHEN OTHERS THEN \
                        INSERT INTO public.tried VALUES (attempt, SQLSTATE); \
                    END; \
                END LOOP; \
                RETURN NEW; \
             END $f$; \
             CREATE TRIGGER climb BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION climb()",
        )
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    wait_for_outbox(&mut client, 1);
    let tried = client
        .query("SELECT what, outcome FROM tried", &[])
        .unwrap();
    assert_eq!(tried.len(), 7);
    for row in tried {
        let (what, outcome): (String, String) = (row.get(0), row.get(1));
        assert!(outcome == "42501", "{what}: {outcome}");
    }
}

/// Abuse of links is logged once, no matter how often and with how many links, and without address or code.
#[test]
fn abuse_is_logged_once_a_minute() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.requests_per_hour = 1",
        "mailroom.request_interval = 0",
        "mailroom.collect = off",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             SELECT 'who' || i || '@example.com', 'who' || i, 'active' FROM generate_series(1, 3) i; \
             INSERT INTO tokens (account, action, code) SELECT id, 'password_recovery', '04711' FROM accounts; \
             DELETE FROM pending",
        )
        .unwrap();
    let guess = "SELECT (mailroom_redeem(mailroom_sign(t.action, t.secret, t.code), '99999')).outcome \
                 FROM tokens t WHERE t.id = $1";
    for token in 1..=2_i64 {
        // In a session of its own, like those of a pool.
        let mut guesser = cluster.connect("app");
        let outcomes: Vec<String> = (0..6)
            .map(|_| guesser.query_one(guess, &[&token]).unwrap().get(0))
            .collect();
        assert_eq!(outcomes[3..], ["wrong_code", "locked", "locked"]);
    }
    client
        .batch_execute(
            "SELECT mailroom_request_recovery('who3@example.com') FROM generate_series(1, 3)",
        )
        .unwrap();
    eventually("the requests to be answered", || {
        (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    client
        .batch_execute("SELECT mailroom_request_recovery('who3@example.com'); SELECT mailroom_answer_requests()")
        .unwrap();
    let log = cluster.log();
    let told = |what: &str| {
        log.lines()
            .filter(|line| line.contains("LOG:") && line.contains(what))
            .count()
    };
    assert_eq!(told("locked after five wrong codes"), 1, "{log}");
    assert_eq!(
        told("more often than mailroom.requests_per_hour"),
        1,
        "{log}"
    );
    assert!(log.contains("DETAIL:  Account 1."), "{log}");
    assert!(log.contains("DETAIL:  Account 3."), "{log}");
    for secret in ["who1@", "who3@", "04711"] {
        let told: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(secret) && !line.contains("STATEMENT"))
            .collect();
        assert!(told.is_empty(), "{told:?}");
    }
}
