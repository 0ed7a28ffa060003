//! When a batch is collected, what it contains, and what a failed batch costs.

use std::time::Duration;

use super::{hear, insert_accounts, insert_unannounced, last_activity, wait_for_outbox};
use crate::cluster::{Cluster, Stop, another_worker, eventually, find_worker, number};
use postgres::Client;

/// The number of tokens that each batch collected, and its trigger.
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
fn commits_that_join_a_partial_batch_cost_the_worker_no_transaction() {
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
    // The worker examines the queue once more a second after it notified; then it is idle.
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
    // Two tokens wait. If the rolled-back ones had been announced, the batch would have been taken already.
    insert_accounts(&mut client, "e", 1);
    wait_for_outbox(&mut client, 3);
    assert_eq!(runs(&mut client), [run(3, "limit")]);
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

/// The beginning of every signed token of this secret: the first 30 bytes in base64url.
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

/// An error of a purge or of the answers to requests ends only their own transaction.
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

/// A worker that purges all the time does not try to delete the same rows all the time.
#[test]
fn rows_that_the_application_keeps_are_not_tried_with_every_purge() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '200ms'", "mailroom.retention = 0"]);
    client
        .batch_execute(
            "CREATE SEQUENCE tried; GRANT USAGE ON SEQUENCE tried TO PUBLIC; \
             CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN PERFORM nextval('public.tried'); RAISE foreign_key_violation; END $$; \
             CREATE TRIGGER kept BEFORE DELETE ON outbox FOR EACH ROW WHEN (OLD.kind = 'kept') EXECUTE FUNCTION kept(); \
             INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             SELECT 'kept', '{a@example.com}', 'sent', '2000-01-01', '2000-01-01' FROM generate_series(1, 20)",
        )
        .unwrap();
    cluster.worker("app");
    let mut tried = Vec::new();
    for _ in 0..6 {
        client
            .batch_execute(
                "INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
                 VALUES ('gone', '{a@example.com}', 'sent', now() - interval '1 h', now() - interval '1 h')",
            )
            .unwrap();
        eventually("the other mail to be purged", || {
            let left = number(
                &mut client,
                "SELECT count(*) FROM outbox WHERE kind = 'gone'",
            );
            (left == 0).then_some(())
        });
        tried.push(number(&mut client, "SELECT last_value FROM tried"));
    }
    // The first purge ends a round, and the second one is the next round.
    assert!(tried[0] >= 20, "{tried:?}");
    assert_eq!(tried[2], tried[5], "{tried:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 20);
    // An operator asks for it sooner.
    client
        .batch_execute("DROP TRIGGER kept ON outbox; SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("all to be purged", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 0).then_some(())
    });
}

/// Deleting rows that much refers to may take longer than a purge may.
#[test]
fn a_purge_that_takes_too_long_is_repeated_with_fewer_rows() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '200ms'", "mailroom.retention = 0"]);
    client
        .batch_execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN OLD; END $$; \
             CREATE TRIGGER slow BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION slow(); \
             INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             SELECT 'own', '{a@example.com}', 'sent', '2000-01-01', '2000-01-01' FROM generate_series(1, 30)",
        )
        .unwrap();
    cluster.worker("app");
    eventually("a purge to take too long", || {
        cluster.log().contains("could not purge").then_some(())
    });
    // An operator does not wait for the next try, nor for the one after that.
    eventually("all to be purged", || {
        client
            .batch_execute("SELECT mailroom_wake_worker()")
            .unwrap();
        (number(&mut client, "SELECT count(*) FROM outbox") == 0).then_some(())
    });
}
