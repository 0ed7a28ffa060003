//! The worker, end to end: batches, wake-ups, failures and violent ends.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Stop, another_worker, eventually, find_worker, number, signal};
use postgres::Client;

/// Inserts `count` accounts whose names begin with `prefix`.
fn insert_accounts(client: &mut Client, prefix: &str, count: u32) {
    client
        .execute(
            "INSERT INTO accounts (email, login) \
             SELECT $1 || i || '@example.com', $1 || i FROM generate_series(1, $2::bigint) i",
            &[&prefix, &i64::from(count)],
        )
        .unwrap();
}

/// Waits until the worker has looked and sleeps until something of this sort.
fn wait_for_wake(client: &mut Client, is_wanted: impl Fn(&str) -> bool) {
    eventually("the worker to have looked", || {
        let next: String = client
            .query_one("SELECT next_wake_for FROM mailroom_status()", &[])
            .unwrap()
            .get(0);
        is_wanted(&next).then_some(())
    });
}

/// Waits until the outbox has `count` rows, and no more.
fn wait_for_outbox(client: &mut Client, count: i64) {
    eventually(&format!("{count} rows in the outbox"), || {
        (number(client, "SELECT count(*) FROM outbox") >= count).then_some(())
    });
    assert_eq!(number(client, "SELECT count(*) FROM outbox"), count);
}

/// How many tokens each batch collected, and why it went.
fn runs(client: &mut Client) -> Vec<(i32, String)> {
    let rows = client
        .query(
            "SELECT collected, trigger::text FROM job_runs ORDER BY id",
            &[],
        )
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn run(collected: i32, trigger: &str) -> (i32, String) {
    (collected, trigger.to_owned())
}

/// A worker other than `old`, and a connection to talk about it with.
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
fn a_full_batch_goes_at_once_and_the_rest_after_the_timeout() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 3", "mailroom.batch_timeout = '2s'"]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", 5);
    wait_for_outbox(&mut client, 5);
    assert_eq!(runs(&mut client), [run(3, "limit"), run(2, "timeout")]);
}

#[test]
fn a_recovery_takes_along_what_waits_and_goes_first() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_timeout = '1h'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('z@example.com', 'z', 'active')",
        )
        .unwrap();
    insert_accounts(&mut client, "a", 2);
    client
        .batch_execute("INSERT INTO tokens (account, action) VALUES (1, 'password_recovery')")
        .unwrap();
    wait_for_outbox(&mut client, 3);
    assert_eq!(runs(&mut client), [run(3, "urgent")]);
    let first: String = client
        .query_one("SELECT kind FROM outbox ORDER BY id LIMIT 1", &[])
        .unwrap()
        .get(0);
    assert_eq!(first, "password_recovery");
}

/// Queues a token without telling anybody.
fn insert_unannounced(client: &mut Client) {
    client
        .batch_execute(
            "BEGIN; ALTER TABLE tokens DISABLE TRIGGER tokens_enqueue; \
             INSERT INTO accounts (email, login) VALUES ('u@example.com', 'u'); \
             ALTER TABLE tokens ENABLE TRIGGER tokens_enqueue; \
             INSERT INTO pending (lane, token_id) SELECT 1, max(id) FROM tokens; COMMIT",
        )
        .unwrap();
}

#[test]
fn the_poll_floor_finds_what_nobody_announced() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '1h'",
        "mailroom.poll_interval = '200ms'",
    ]);
    cluster.worker("app");
    insert_unannounced(&mut client);
    wait_for_outbox(&mut client, 1);
    assert_eq!(runs(&mut client), [run(1, "poll")]);
}

#[test]
fn any_notify_on_the_channel_wakes_it() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "mailroom.poll_interval = '1h'",
        "mailroom.channel = 'Wake up'",
    ]);
    cluster.worker("app");
    insert_unannounced(&mut client);
    client.batch_execute("NOTIFY \"Wake up\"").unwrap();
    wait_for_outbox(&mut client, 1);
}

/// Waits until the worker waits for a lock.
fn wait_for_lock(client: &mut Client, worker: i32) {
    eventually("the worker to wait for the lock", || {
        let waits = client
            .query_opt(
                "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
                &[&worker],
            )
            .unwrap();
        waits.map(|_| ())
    });
}

/// The next notification on `token_insert` that a session hears.
fn hear(listener: &mut Client) {
    use postgres::fallible_iterator::FallibleIterator;
    let mut notifications = listener.notifications();
    let heard = notifications
        .timeout_iter(crate::cluster::PATIENCE)
        .next()
        .unwrap()
        .expect("a notification");
    assert_eq!(heard.channel(), "token_insert");
}

/// When the worker last began or ended a transaction.
fn last_activity(client: &mut Client) -> std::time::SystemTime {
    client
        .query_one(
            "SELECT state_change FROM pg_stat_activity WHERE backend_type = 'mailroom worker'",
            &[],
        )
        .unwrap()
        .get(0)
}

#[test]
fn commits_that_join_a_lingering_batch_cost_the_worker_no_transaction() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '1h'",
        "mailroom.batch_limit = 20",
        "mailroom.poll_interval = '1h'",
    ]);
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN token_insert").unwrap();
    cluster.worker("app");
    insert_accounts(&mut client, "first", 1);
    hear(&mut listener);
    // The worker looks once more a second after it notified; then it is quiet.
    let mut quiet = last_activity(&mut client);
    eventually("the worker to be quiet", || {
        let before = std::mem::replace(&mut quiet, last_activity(&mut client));
        (before == quiet && quiet.elapsed().unwrap() > Duration::from_secs(3)).then_some(())
    });
    for i in 0..18 {
        insert_accounts(&mut client, &format!("more{i}-"), 1);
    }
    assert_eq!(last_activity(&mut client), quiet, "it ran a transaction");
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 19);
    insert_accounts(&mut client, "last", 1);
    wait_for_outbox(&mut client, 20);
    assert_eq!(runs(&mut client), [run(20, "limit")]);
}

#[test]
fn only_what_commits_wakes_the_worker() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_timeout = '1h'", "mailroom.batch_limit = 3"]);
    cluster.worker("app");
    client
        .batch_execute(
            "BEGIN; INSERT INTO accounts (email, login) SELECT i || '@a.example', 'a' || i FROM generate_series(1, 5) i; ROLLBACK; \
             BEGIN; INSERT INTO accounts (email, login) VALUES ('1@b.example', 'b1'); \
             SAVEPOINT s; INSERT INTO accounts (email, login) SELECT i || '@c.example', 'c' || i FROM generate_series(1, 5) i; \
             ROLLBACK TO s; SAVEPOINT t; INSERT INTO accounts (email, login) VALUES ('1@d.example', 'd1'); RELEASE t; COMMIT",
        )
        .unwrap();
    // Two wait; whatever the rolled-back ones had announced would have made it a batch.
    insert_accounts(&mut client, "e", 1);
    wait_for_outbox(&mut client, 3);
    assert_eq!(runs(&mut client), [run(3, "limit")]);
}

#[test]
fn outside_listeners_hear_of_tokens_that_a_worker_takes() {
    for (setting, heard) in [("auto", true), ("commit", true), ("off", false)] {
        let (cluster, mut client) = Cluster::start_with_app(&[
            "mailroom.batch_limit = 1",
            &format!("mailroom.notify = {setting}"),
        ]);
        let mut listener = cluster.connect("app");
        listener.batch_execute("LISTEN token_insert").unwrap();
        cluster.worker("app");
        insert_accounts(&mut client, "a", 1);
        wait_for_outbox(&mut client, 1);
        if heard {
            hear(&mut listener);
            // A token that waits for company is no secret either.
            cluster.append(
                "postgresql.auto.conf",
                "mailroom.batch_limit = 9\nmailroom.batch_timeout = '1h'\n",
            );
            cluster.reload();
            insert_accounts(&mut client, "b", 1);
            hear(&mut listener);
        } else {
            // What this sends is heard first if nothing else was sent.
            client
                .batch_execute("NOTIFY token_insert, 'only this'")
                .unwrap();
            use postgres::fallible_iterator::FallibleIterator;
            let mut notifications = listener.notifications();
            let first = notifications
                .timeout_iter(crate::cluster::PATIENCE)
                .next()
                .unwrap()
                .unwrap();
            assert_eq!(first.payload(), "only this");
        }
    }
}

#[test]
fn a_prepared_transaction_wakes_the_worker_when_it_is_finished() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "mailroom.poll_interval = '1h'",
        "max_prepared_transactions = 2",
    ]);
    cluster.worker("app");
    client.batch_execute("BEGIN").unwrap();
    insert_accounts(&mut client, "a", 1);
    client.batch_execute("PREPARE TRANSACTION 'p'").unwrap();
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_for_outbox(&mut client, 1);

    // One that took tokens gives them back when it is rolled back.
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "b", 1);
    client
        .batch_execute("BEGIN; SELECT FROM mailroom_dequeue(1); PREPARE TRANSACTION 'p'")
        .unwrap();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| !next.contains("resume"));
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 1);
    client.batch_execute("ROLLBACK PREPARED 'p'").unwrap();
    wait_for_outbox(&mut client, 2);
}

#[test]
fn a_reload_changes_the_channel_and_the_rule() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '1h'",
        "mailroom.poll_interval = '1h'",
    ]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", 1);
    cluster.append(
        "postgresql.auto.conf",
        "mailroom.batch_timeout = 0\nmailroom.channel = 'other'\n",
    );
    cluster.reload();
    wait_for_outbox(&mut client, 1);
    eventually("the reload to reach this session", || {
        let channel: String = client
            .query_one("SHOW mailroom.channel", &[])
            .unwrap()
            .get(0);
        (channel == "other").then_some(())
    });
    // Only the new channel can tell it of this one.
    insert_unannounced(&mut client);
    client.batch_execute("NOTIFY other").unwrap();
    wait_for_outbox(&mut client, 2);
}

#[test]
fn a_row_that_cannot_be_signed_ends_as_error_and_the_rest_goes_on() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 3"]);
    cluster.worker("app");
    client
        .batch_execute(
            "ALTER TABLE tokens DISABLE TRIGGER tokens_check; \
             INSERT INTO accounts (email, login, status) SELECT i || '@example.com', i, 'active' FROM generate_series(1, 3) i; \
             INSERT INTO tokens (account, action, secret) VALUES \
                (1, 'password_recovery', DEFAULT), (2, 'password_recovery', '\\x00'), (3, 'password_recovery', DEFAULT)",
        )
        .unwrap();
    wait_for_outbox(&mut client, 3);
    let row = client
        .query_one(
            "SELECT account_id, last_error, data::text FROM outbox WHERE state = 'error'",
            &[],
        )
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 2);
    assert_eq!(row.get::<_, String>(1), "secret is not 32 bytes");
    assert_eq!(row.get::<_, String>(2), r#"{"login": "2"}"#);
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'"
        ),
        2
    );
    assert_eq!(number(&mut client, "SELECT sum(skipped) FROM job_runs"), 1);
}

#[test]
fn a_failing_batch_is_logged_once_backed_off_and_retried() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 2"]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'no mail today' USING DETAIL = NEW.data::text; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    insert_accounts(&mut client, "a", 2);
    eventually("two failures in job_runs", || {
        (number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error LIKE 'no mail today [P0001]'",
        ) >= 2)
            .then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 2);
    let log = cluster.log();
    assert_eq!(
        log.matches("mailroom worker could not take a batch")
            .count(),
        1,
        "{log}"
    );
    for row in client.query("SELECT secret FROM tokens", &[]).unwrap() {
        assert!(
            !log.contains(&mailroom_prefix(row.get(0))),
            "a signed token is in the log"
        );
    }
    client
        .batch_execute("DROP TRIGGER refuse ON outbox")
        .unwrap();
    wait_for_outbox(&mut client, 2);
    eventually("the recovery to be logged", || {
        cluster
            .log()
            .contains("mailroom worker works again")
            .then_some(())
    });
}

/// How every signed token of this secret begins: the first 30 bytes in base64url.
fn mailroom_prefix(secret: Vec<u8>) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    secret[..30]
        .chunks(3)
        .flat_map(|c| {
            let bits = u32::from(c[0]) << 16 | u32::from(c[1]) << 8 | u32::from(c[2]);
            [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize] as char)
        })
        .collect()
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
    // After five seconds it would have given up waiting for the lock by itself.
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
    // pg_ctl would wait for a minute; a worker that ignored the stop would make it fail.
    let took = cluster.stop_server(Stop::Fast);
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(cluster.log().contains("mailroom worker stopped"));
    cluster.start_server();
    let mut client = cluster.connect("app");
    wait_for_outbox(&mut client, 20_000);
}

#[test]
fn every_database_with_the_extension_has_its_own_worker() {
    let cluster = Cluster::start(&["mailroom.batch_limit = 1", "max_worker_processes = 8"]);
    let mut one = cluster.create_database("one");
    let mut two = cluster.create_database("two");
    let mut three = cluster.create_database("three");
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE bystander")
        .unwrap();
    cluster.worker("one");
    cluster.worker("two");
    cluster.worker("three");
    insert_accounts(&mut one, "a", 3);
    insert_accounts(&mut two, "b", 2);
    insert_accounts(&mut three, "c", 1);
    wait_for_outbox(&mut one, 3);
    wait_for_outbox(&mut two, 2);
    wait_for_outbox(&mut three, 1);
    drop((one, two, three));
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    cluster.worker("one");
    cluster.worker("two");
    cluster.worker("three");
    let mut client = cluster.connect("postgres");
    let workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'mailroom worker'";
    eventually("three workers and no fourth", || {
        (number(&mut client, workers) == 3).then_some(())
    });
}

#[test]
fn a_consumer_that_rolls_back_wakes_the_worker_for_what_it_gives_back() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "a", 2);
    let mut consumer = cluster.connect("app");
    consumer
        .batch_execute(
            "BEGIN; SELECT FROM mailroom_dequeue(1); SAVEPOINT s; SELECT FROM mailroom_dequeue(1)",
        )
        .unwrap();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| !next.contains("resume"));
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
    consumer.batch_execute("ROLLBACK TO s").unwrap();
    wait_for_outbox(&mut client, 1);
    consumer.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 2);
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

#[test]
fn without_preload_inserts_notify_and_a_client_collects() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let output = {
        cluster
            .connect("postgres")
            .batch_execute("CREATE DATABASE app")
            .unwrap();
        cluster.psql("app", "CREATE EXTENSION mailroom")
    };
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        warning.contains("mailroom is not in shared_preload_libraries"),
        "{warning}"
    );
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN token_insert").unwrap();
    let mut client = cluster.connect("app");
    insert_accounts(&mut client, "a", 4);
    let heard = {
        use postgres::fallible_iterator::FallibleIterator;
        let mut notifications = listener.notifications();
        let heard = notifications
            .timeout_iter(crate::cluster::PATIENCE)
            .next()
            .unwrap();
        heard.map(|notification| notification.channel().to_owned())
    };
    assert_eq!(heard.as_deref(), Some("token_insert"));
    assert_eq!(number(&mut client, "SELECT mailroom_collect(3)"), 3);
    assert_eq!(number(&mut client, "SELECT mailroom_collect(3)"), 1);
    assert_eq!(number(&mut client, "SELECT mailroom_collect(3)"), 0);
}

/// The first notification on `channel`, for as long as one may wait.
fn hear_on(listener: &mut Client, channel: &str) {
    use postgres::fallible_iterator::FallibleIterator;
    let mut notifications = listener.notifications();
    let mut heard = notifications.timeout_iter(crate::cluster::PATIENCE);
    while let Some(notification) = heard.next().unwrap() {
        if notification.channel() == channel {
            return;
        }
    }
    panic!("nothing was heard on {channel}");
}

/// Waits until the worker has nothing to do but to poll, and forgets what was told until then.
fn settle(client: &mut Client, listener: &mut Client) {
    use postgres::fallible_iterator::FallibleIterator;
    eventually("the worker to be idle for a while", || {
        client
            .query_opt(
                "SELECT FROM pg_stat_activity WHERE backend_type = 'mailroom worker' \
                 AND datname = current_database() AND state_change < now() - interval '4 s'",
                &[],
            )
            .unwrap()
    });
    let mut notifications = listener.notifications();
    while notifications.iter().next().unwrap().is_some() {}
}

/// Transactions of the worker so far, as its statistics tell once it is idle.
fn transactions(cluster: &Cluster, database: &str) -> i64 {
    number(
        &mut cluster.connect("postgres"),
        &format!(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'"
        ),
    )
}

#[test]
fn senders_hear_of_mail_when_it_becomes_due() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);

    let send = "SELECT mailroom_send('a@example.com', 'S', 'T', send_at => clock_timestamp() + $1::text::interval)";
    client.query_one(send, &[&"0"]).unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);

    client.query_one(send, &[&"1 h"]).unwrap();
    client.query_one(send, &[&"500 ms"]).unwrap();
    let due = "SELECT count(*) FROM outbox WHERE send_at <= clock_timestamp()";
    hear_on(&mut listener, "outbox_due");
    assert_eq!(number(&mut client, due), 2);

    // What a rolled-back transaction scheduled is announced to nobody; this is what is heard instead.
    settle(&mut client, &mut listener);
    client.batch_execute("BEGIN").unwrap();
    client.query_one(send, &[&"0"]).unwrap();
    client.batch_execute("ROLLBACK").unwrap();
    client
        .batch_execute("SELECT mailroom_reschedule(max(id), clock_timestamp()) FROM outbox WHERE send_at > now()")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    assert_eq!(number(&mut client, due), 3);
}

/// Mail that somebody puts into the outbox by hand is announced as that of mailroom_send.
#[test]
fn senders_hear_of_mail_that_somebody_inserts() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);
    for due in ["now()", "clock_timestamp() + interval '500 ms'"] {
        client
            .batch_execute(&format!(
                "INSERT INTO outbox (kind, recipients, subject, body_text, send_at) \
                 VALUES ('own', '{{a@example.com}}', 'S', 'T', {due})"
            ))
            .unwrap();
        hear_on(&mut listener, "outbox_due");
        let waits = "SELECT count(*) FROM outbox WHERE send_at > clock_timestamp()";
        assert_eq!(number(&mut client, waits), 0);
        settle(&mut client, &mut listener);
    }
}

/// What somebody tries with links is told once, however often and with however many, and without address or code.
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
        // From a session of its own, as those of a pool are.
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

/// A database with a due mail, and who listens for mail; both have come to rest.
fn with_mail_that_a_sender_heard_of() -> (Cluster, Client, Client) {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);
    (cluster, client, listener)
}

#[test]
fn senders_hear_of_claims_that_lapse() {
    let (_cluster, mut client, mut listener) = with_mail_that_a_sender_heard_of();
    client
        .batch_execute("SELECT FROM mailroom_claim(1, '700 ms', 'gone')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    let row = client
        .query_one(
            "SELECT state::text, failed_attempts, last_error FROM outbox",
            &[],
        )
        .unwrap();
    let (state, attempts, error): (String, i32, String) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(
        (state.as_str(), attempts, error.as_str()),
        ("scheduled", 1, "claim lapsed")
    );
}

#[test]
fn senders_hear_of_claims_that_are_rolled_back_and_of_groups_that_are_free_again() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', group_key => 'g') FROM generate_series(1, 2)",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);

    client
        .batch_execute("BEGIN; SELECT FROM mailroom_claim(2, '1 h', 'one'); ROLLBACK")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);

    client
        .batch_execute("SELECT FROM mailroom_claim(1, '1 h', 'one')")
        .unwrap();
    let free = "SELECT count(*) FROM mailroom_claim(1, '1 h', 'two')";
    assert_eq!(number(&mut client, free), 0);
    client
        .batch_execute(
            "SELECT mailroom_mark_sent(id, claimant => 'one') FROM outbox WHERE claimed_by = 'one'",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    assert_eq!(number(&mut client, free), 1);
}

#[test]
fn mail_that_becomes_due_while_the_worker_fails_is_told_when_it_recovers() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    client
        .batch_execute("REVOKE SELECT ON pending FROM mailroom_collector")
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    eventually("a failure", || {
        (number(&mut client, "SELECT errors_in_a_row FROM mailroom_status()") > 0).then_some(())
    });
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', send_at => now() + interval '200 ms')",
        )
        .unwrap();
    eventually("two failures more", || {
        (number(&mut client, "SELECT errors_in_a_row FROM mailroom_status()") > 2).then_some(())
    });
    {
        use postgres::fallible_iterator::FallibleIterator;
        let mut notifications = listener.notifications();
        while notifications.iter().next().unwrap().is_some() {}
    }
    // With the queue taken away, it is the outbox alone that there is something to tell of.
    client
        .batch_execute("DELETE FROM pending; GRANT SELECT ON pending TO mailroom_collector")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
}

/// Scans of the queue so far, by anybody.
fn looks(cluster: &Cluster) -> i64 {
    number(
        &mut cluster.connect("app"),
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'pending_pkey'",
    )
}

/// I9: neither other channels nor what never was make the worker look.
#[test]
fn what_others_notify_and_roll_back_does_not_drive_it() {
    const TIMES: i64 = 300;
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "autovacuum = off"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    settle(&mut client, &mut listener);
    let mut noisy = cluster.connect("app");
    let before = (looks(&cluster), transactions(&cluster, "app"));
    let begin = Instant::now();
    for _ in 0..TIMES {
        noisy.batch_execute("NOTIFY something_else").unwrap();
        noisy
            .batch_execute("BEGIN; SELECT mailroom_send('a@example.com', 'S', 'T'); NOTIFY token_insert; ROLLBACK")
            .unwrap();
    }
    let seconds = i64::try_from(begin.elapsed().as_secs()).unwrap();
    drop(noisy);
    eventually("the statistics of the session that notified", || {
        (transactions(&cluster, "app") >= before.1 + 2 * TIMES).then_some(())
    });
    settle(&mut client, &mut listener);
    // It cannot tell on which channel one is, so it looks at the first, and a second after those that follow: once a
    // second, and a look is a scan or two.
    let looked = looks(&cluster) - before.0;
    let allowed = 2 * (seconds + 3);
    assert!(
        looked <= allowed && allowed < TIMES / 2,
        "{looked} scans of the queue in {seconds} s"
    );

    // And this one it must hear: so a look is seen here.
    for _ in 0..3 {
        let before = looks(&cluster);
        listener.batch_execute("NOTIFY token_insert").unwrap();
        eventually("the worker to look", || {
            (looks(&cluster) > before).then_some(())
        });
    }
}

#[test]
fn a_consumer_that_keeps_failing_does_not_hurry_it() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN RAISE insufficient_resources; END $$; \
             CREATE TRIGGER no BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION no()",
        )
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    eventually("a failure", || {
        (number(&mut client, "SELECT count(*) FROM job_runs") > 0).then_some(())
    });
    for _ in 0..200 {
        assert!(client.batch_execute("SELECT mailroom_collect()").is_err());
    }
    let failures = number(&mut client, "SELECT count(*) FROM job_runs");
    assert!(failures < 20, "{failures} failures");
    client.batch_execute("DROP TRIGGER no ON outbox").unwrap();
    wait_for_outbox(&mut client, 1);
}

#[test]
fn a_deletion_that_is_rolled_back_gives_its_tokens_back() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '300ms'",
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = 'off'",
    ]);
    cluster.worker("app");
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "a", 1);
    let mut other = cluster.connect("app");
    other.batch_execute("BEGIN; DELETE FROM accounts").unwrap();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| next == "poll");
    other.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 1);
}

#[test]
fn tokens_given_back_are_seen_at_once_each_time() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = 'off'",
    ]);
    cluster.worker("app");
    for round in 1..=25 {
        client.batch_execute("BEGIN").unwrap();
        insert_accounts(&mut client, &format!("a{round}-"), 1);
        client.batch_execute("COMMIT").unwrap();
        // Whoever is first has it; where it was the consumer, the worker must see it again.
        client
            .batch_execute("BEGIN; SELECT FROM mailroom_dequeue(1); ROLLBACK")
            .unwrap();
        wait_for_outbox(&mut client, round);
    }
}

#[test]
fn the_defaults_of_a_database_do_not_reach_it() {
    let cluster = Cluster::start(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    let mut other = cluster.connect("postgres");
    other.batch_execute("CREATE DATABASE app").unwrap();
    other
        .batch_execute(
            "ALTER DATABASE app SET default_transaction_isolation = 'serializable'; \
             ALTER DATABASE app SET search_path = ''",
        )
        .unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute("SET search_path = public; CREATE EXTENSION mailroom")
        .unwrap();
    client
        .batch_execute("ALTER DATABASE app SET default_transaction_read_only = on")
        .unwrap();
    let worker = eventually("a worker", || find_worker(&mut client));
    client
        .query_one("SELECT pg_terminate_backend($1)", &[&worker])
        .unwrap();
    another_worker(&mut client, worker);
    insert_accounts(&mut client, "a", 3);
    wait_for_outbox(&mut client, 3);
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error IS NOT NULL"
        ),
        0
    );
}

#[test]
fn a_pause_is_in_force_from_its_commit_on_whatever_waits() {
    // One token a batch, so that there is always a next one.
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    let worker = cluster.worker("app");
    client
        .batch_execute("INSERT INTO accounts (id, email, login, status) VALUES (1000, 'z@example.com', 'z', 'active')")
        .unwrap();
    // The worker is in the middle of the first of fifty batches when it is told to pause.
    let mut other = cluster.connect("app");
    other
        .batch_execute("BEGIN; LOCK TABLE outbox IN SHARE ROW EXCLUSIVE MODE")
        .unwrap();
    insert_accounts(&mut client, "a", 50);
    let blocked = format!("SELECT count(*) FROM pg_locks WHERE pid = {worker} AND NOT granted");
    eventually("the worker to be at it", || {
        (number(&mut client, &blocked) == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    let paused_at: std::time::SystemTime = client
        .query_one("SELECT clock_timestamp()", &[])
        .unwrap()
        .get(0);
    // However urgent it is.
    client
        .batch_execute("INSERT INTO tokens (account, action) VALUES (1000, 'password_recovery')")
        .unwrap();
    other.batch_execute("COMMIT").unwrap();
    wait_for_wake(&mut client, |reason| reason.starts_with("paused"));
    let later: i64 = client
        .query_one(
            "SELECT count(*) FROM job_runs WHERE started_at > $1",
            &[&paused_at],
        )
        .unwrap()
        .get(0);
    assert_eq!(later, 0, "batches were begun after the pause");
    let waiting = "SELECT count(*) FROM pending";
    assert!(number(&mut client, waiting) >= 50);
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    eventually("the rest", || {
        (number(&mut client, waiting) == 0).then_some(())
    });
}

#[test]
fn only_what_was_claimed_within_a_savepoint_comes_back_with_it() {
    let (cluster, mut client, mut listener) = with_mail_that_a_sender_heard_of();

    // The claim goes with its savepoint, and who waits for mail hears of it before the transaction ends.
    let mut other = cluster.connect("app");
    other
        .batch_execute(
            "BEGIN; SAVEPOINT s; SELECT FROM mailroom_claim(1, '1 h', 'one'); ROLLBACK TO s",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    other.batch_execute("COMMIT").unwrap();
    settle(&mut client, &mut listener);

    // A claim that was made before the savepoint stays, and the worker is left alone.
    let before = last_activity(&mut client);
    other
        .batch_execute("BEGIN; SELECT FROM mailroom_claim(1, '1 h', 'one'); SAVEPOINT s; SELECT 1; ROLLBACK TO s")
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(last_activity(&mut client), before, "it was woken");
    other.batch_execute("COMMIT").unwrap();
    let claimed = "SELECT count(*) FROM outbox WHERE state = 'claimed'";
    assert_eq!(number(&mut client, claimed), 1);
}

/// Publishes `inbox` of a database of that name and has `app` apply what is inserted there to a table of its own, whose
/// trigger runs `body` in the apply worker: a background worker that is not ours.
fn apply_in(cluster: &Cluster, app: &mut Client, body: &str) -> Client {
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE publisher")
        .unwrap();
    let mut publisher = cluster.connect("publisher");
    publisher
        .batch_execute(
            "CREATE TABLE inbox (id integer PRIMARY KEY); CREATE PUBLICATION all_of_it FOR TABLE inbox",
        )
        .unwrap();
    // Made first, since the slot of a server's own cannot be made while CREATE SUBSCRIPTION is open.
    publisher
        .batch_execute("SELECT pg_create_logical_replication_slot('applied', 'pgoutput')")
        .unwrap();
    let host = cluster.socket().display();
    app.batch_execute(&format!(
        "CREATE TABLE inbox (id integer PRIMARY KEY); \
         CREATE FUNCTION on_arrival() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ {body} $$; \
         CREATE TRIGGER on_arrival AFTER INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION on_arrival(); \
         ALTER TABLE inbox ENABLE ALWAYS TRIGGER on_arrival; \
         CREATE SUBSCRIPTION applied CONNECTION 'host={host} dbname=publisher user=postgres' \
         PUBLICATION all_of_it WITH (create_slot = false, copy_data = false)"
    ))
    .unwrap();
    publisher
}

#[test]
fn mail_that_an_apply_worker_schedules_is_told_when_it_becomes_due() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "wal_level = logical"]);
    cluster.worker("app");
    let mut publisher = apply_in(
        &cluster,
        &mut client,
        "BEGIN PERFORM mailroom_send('a@example.com', 'S', 'T', send_at => clock_timestamp() + interval '1 s'); RETURN NULL; END",
    );
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);
    publisher
        .batch_execute("INSERT INTO inbox VALUES (1)")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    let due = "SELECT count(*) FROM outbox WHERE send_at <= clock_timestamp()";
    assert_eq!(number(&mut client, due), 1);
}

#[test]
fn tokens_that_an_apply_worker_gives_back_are_seen_at_once() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '300ms'",
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = 'off'",
        "wal_level = logical",
    ]);
    cluster.worker("app");
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "a", 1);
    let mut holder = cluster.connect("app");
    holder.batch_execute("SELECT pg_advisory_lock(42)").unwrap();
    let mut publisher = apply_in(
        &cluster,
        &mut client,
        "BEGIN \
             BEGIN \
                 PERFORM FROM mailroom_dequeue(1); \
                 PERFORM pg_advisory_xact_lock(42); \
                 RAISE EXCEPTION 'given back'; \
             EXCEPTION WHEN raise_exception THEN NULL; \
             END; \
             RETURN NULL; \
         END",
    );
    publisher
        .batch_execute("INSERT INTO inbox VALUES (1)")
        .unwrap();
    eventually("the apply worker to have the token", || {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        (number(&mut client, waits) == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| next == "poll");
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
    holder
        .batch_execute("SELECT pg_advisory_unlock(42)")
        .unwrap();
    wait_for_outbox(&mut client, 1);
}

/// Takes what waits as the original collector does: lines, until there is none.
fn drain(collector: &mut Client) -> Vec<String> {
    std::iter::from_fn(|| {
        collector
            .query_one("SELECT mailroom_dequeue_line()", &[])
            .unwrap()
            .get::<_, Option<String>>(0)
    })
    .collect()
}

/// Changes a setting and, once that is committed, has the server reload.
fn reload_after(client: &mut Client, change: &str) {
    client.batch_execute(change).unwrap();
    client.batch_execute("SELECT pg_reload_conf()").unwrap();
}

/// How the worker of a database is, while a collector listens beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    CollectOff,
}

#[test]
fn a_collector_that_listens_and_drains_hears_of_each_commit() {
    for mode in [Mode::Running, Mode::Paused, Mode::CollectOff] {
        let (cluster, mut client) =
            Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
        let worker = cluster.worker("app");
        match mode {
            Mode::Running => {}
            Mode::Paused => client.batch_execute("SELECT mailroom_pause()").unwrap(),
            Mode::CollectOff => {
                reload_after(&mut client, "ALTER DATABASE app SET mailroom.collect = off")
            }
        }
        wait_for_wake(&mut client, |next| match mode {
            Mode::Running => next == "poll",
            Mode::Paused => next.starts_with("paused"),
            Mode::CollectOff => next.contains("mailroom.collect"),
        });
        let mut collector = cluster.connect("app");
        collector.batch_execute("LISTEN token_insert").unwrap();
        assert_eq!(drain(&mut collector), [""; 0]);
        let mut taken = Vec::new();
        for round in 1..=4 {
            // Nothing is left to be heard of earlier commits, and I9: the worker has come to rest.
            settle(&mut client, &mut collector);
            // Nobody hears of what is rolled back.
            client.batch_execute("BEGIN").unwrap();
            insert_accounts(&mut client, &format!("rolled-back-{round}-"), 1);
            client.batch_execute("ROLLBACK").unwrap();
            if round < 3 {
                insert_accounts(&mut client, &format!("a{round}-"), 1);
            } else {
                client
                    .batch_execute(&format!(
                        "INSERT INTO accounts (email, login, status) VALUES ('r{round}@example.com', 'r{round}', 'active'); \
                         INSERT INTO tokens (account, action) SELECT max(id), 'password_recovery' FROM accounts"
                    ))
                    .unwrap();
            }
            hear(&mut collector);
            taken.extend(drain(&mut collector));
        }
        assert_eq!(
            find_worker(&mut client),
            Some(worker),
            "it was not restarted"
        );
        let outbox = number(&mut client, "SELECT count(*) FROM outbox");
        if mode == Mode::Running {
            eventually("each token to be taken", || {
                (number(&mut client, "SELECT count(*) FROM pending") == 0).then_some(())
            });
        } else {
            assert_eq!((taken.len(), outbox), (4, 0), "{taken:?}");
        }
    }
}

#[test]
fn commits_side_by_side_are_all_heard_of_while_tokens_are_left_to_clients() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.collect = off",
        "mailroom.batch_limit = 10",
        "mailroom.poll_interval = '1h'",
    ]);
    cluster.worker("app");
    let mut collector = cluster.connect("app");
    collector.batch_execute("LISTEN token_insert").unwrap();
    let mut taken = drain(&mut collector).len();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut client = cluster.connect("app");
                for i in 0..250 {
                    insert_accounts(&mut client, &format!("w{writer}-{i}-"), 1);
                }
            });
        }
        // A commit that came after the last look has to be heard of, or this waits in vain.
        while taken < 1000 {
            hear(&mut collector);
            for line in drain(&mut collector) {
                taken += line.split(',').count() / 5;
            }
        }
    });
    assert_eq!(taken, 1000);
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
}

#[test]
fn a_worker_that_leaves_tokens_to_clients_goes_on_with_the_rest() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.collect = off", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener
        .batch_execute("LISTEN token_insert; LISTEN outbox_due")
        .unwrap();
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
    settle(&mut client, &mut listener);

    // A request becomes a token, which is left to clients and which they hear of.
    client
        .batch_execute("SELECT mailroom_request_recovery('a@example.com')")
        .unwrap();
    hear_on(&mut listener, "token_insert");
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 1);
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
    assert_eq!(drain(&mut listener).len(), 1);

    // Mail that becomes due, and claims that lapse, are told to senders.
    settle(&mut client, &mut listener);
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T', send_at => clock_timestamp() + interval '300 ms')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);
    client
        .batch_execute("SELECT FROM mailroom_claim(1, '300 ms', 'gone')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    let row = client
        .query_one("SELECT state::text, failed_attempts FROM outbox", &[])
        .unwrap();
    assert_eq!(
        (row.get::<_, String>(0), row.get::<_, i32>(1)),
        ("scheduled".to_owned(), 1)
    );

    // It purges.
    client
        .batch_execute(
            "SELECT mailroom_cancel(id) FROM outbox; \
             UPDATE outbox SET created_at = now() - interval '1 year', ended_at = now() - interval '1 year'",
        )
        .unwrap();
    // A statement of its own: it wakes at once, and what is not committed yet is not seen.
    client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the old mail to be purged", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 0).then_some(())
    });

    // And it collects when it is told to, without a restart.
    insert_accounts(&mut client, "b", 2);
    cluster.append("postgresql.auto.conf", "mailroom.collect = on\n");
    cluster.reload();
    wait_for_outbox(&mut client, 2);
}

#[test]
fn settings_of_a_database_are_taken_up_on_reload_and_given_up_too() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 3", "mailroom.poll_interval = '1h'"]);
    let worker = cluster.worker("app");
    let says = |client: &mut Client, wanted: &'static str| {
        wait_for_wake(client, move |next| next.contains(wanted));
    };
    reload_after(&mut client, "ALTER DATABASE app SET mailroom.collect = off");
    says(&mut client, "mailroom.collect");
    insert_accounts(&mut client, "a", 3);

    // What the database says goes before what the server says, also when the server says so later.
    reload_after(&mut client, "ALTER SYSTEM SET mailroom.collect = on");
    reload_after(
        &mut client,
        "ALTER DATABASE app SET mailroom.channel = 'mine'",
    );
    let mut listener = cluster.connect("app");
    listener
        .batch_execute("LISTEN mine; LISTEN token_insert")
        .unwrap();
    settle(&mut client, &mut listener);
    insert_accounts(&mut client, "b", 1);
    hear_on(&mut listener, "mine");
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 4);

    // What it does not say any more is the server's again.
    reload_after(&mut client, "ALTER DATABASE app RESET mailroom.collect");
    wait_for_outbox(&mut client, 4);
    reload_after(&mut client, "ALTER SYSTEM SET mailroom.collect = off");
    says(&mut client, "mailroom.collect");
    reload_after(&mut client, "ALTER SYSTEM RESET mailroom.collect");
    says(&mut client, "poll");
    assert_eq!(find_worker(&mut client), Some(worker));
}

#[test]
fn listeners_hear_of_tokens_while_batches_fail() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN token_insert").unwrap();
    client
        .batch_execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN RAISE insufficient_resources; END $$; \
             CREATE TRIGGER no BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION no()",
        )
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    hear(&mut listener);
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
}

/// What a purge or an answer meets costs them their transaction and nobody else's.
#[test]
fn a_purge_and_answers_that_fail_hold_up_no_token() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '200ms'",
        "mailroom.retention = 0",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN PERFORM pg_sleep(600); RETURN OLD; END $$; \
             CREATE TRIGGER stuck BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION stuck(); \
             CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN RAISE insufficient_resources; END $$; \
             CREATE TRIGGER no BEFORE DELETE ON link_requests FOR EACH STATEMENT EXECUTE FUNCTION no(); \
             INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             VALUES ('own', '{a@example.com}', 'sent', '2000-01-01', '2000-01-01'); \
             SELECT mailroom_request_recovery('nobody@example.com')",
        )
        .unwrap();
    for told in ["could not purge", "could not answer requests"] {
        eventually(told, || cluster.log().contains(told).then_some(()));
    }
    for batch in 1..=5 {
        insert_accounts(&mut client, &format!("b{batch}-"), 1);
        wait_for_outbox(&mut client, batch + 1);
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 1);
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error IS NOT NULL"
        ),
        0
    );
}
