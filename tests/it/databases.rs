//! A worker in each database that has the extension, and in nobody's way.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Stop, another_worker, eventually, find_worker, number};
use postgres::Client;

/// The databases that have a worker.
fn served(client: &mut Client) -> BTreeSet<String> {
    client
        .query(
            "SELECT datname::text FROM pg_stat_activity \
             WHERE backend_type = 'mailroom worker' AND datname IS NOT NULL",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Waits until exactly these databases have a worker.
fn wait_for_workers(client: &mut Client, databases: &[&str]) {
    let expected: BTreeSet<String> = databases.iter().map(|&name| name.to_owned()).collect();
    eventually(&format!("workers in {databases:?}"), || {
        (served(client) == expected).then_some(())
    });
}

/// Inserts one account and waits for its mail.
fn expect_mail(client: &mut Client, name: &str) {
    let before = number(client, "SELECT count(*) FROM outbox");
    client
        .execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[&name],
        )
        .unwrap();
    eventually("its mail", || {
        (number(client, "SELECT count(*) FROM outbox") == before + 1).then_some(())
    });
}

/// Ends the pause that the worker begins in a copy in which mail waits.
fn resume_copy(client: &mut Client) {
    eventually("the worker to pause", || {
        (number(client, "SELECT count(*) FROM pauses") == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_resume()").unwrap();
}

const AT_ONCE: &[&str] = &["mailroom.batch_limit = 1"];

#[test]
fn drop_extension_sends_the_worker_away_at_once() {
    // Nothing but the drop itself can tell the worker: the poll is an hour away.
    let cluster = Cluster::start(&["mailroom.poll_interval = '1h'"]);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    wait_for_workers(&mut client, &[]);
    client
        .batch_execute(
            "CREATE EXTENSION mailroom; DROP EXTENSION mailroom; CREATE EXTENSION mailroom",
        )
        .unwrap();
    wait_for_workers(&mut client, &["app"]);
    client
        .batch_execute("BEGIN; DROP EXTENSION mailroom; CREATE EXTENSION mailroom; COMMIT")
        .unwrap();
    wait_for_workers(&mut client, &["app"]);
    cluster.append("postgresql.auto.conf", "mailroom.batch_limit = 1\n");
    cluster.reload();
    expect_mail(&mut client, "a");
}

#[test]
fn drop_extension_and_a_busy_worker_never_wait_for_each_other_in_a_circle() {
    let cluster = Cluster::start(&[
        "mailroom.poll_interval = '100ms'",
        "deadlock_timeout = '100ms'",
    ]);
    let mut client = cluster.create_database("app");
    for _ in 0..20 {
        wait_for_workers(&mut client, &["app"]);
        // Something for it to do, just now.
        client
            .batch_execute(
                "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
                 SELECT mailroom_request_activation('a@example.com')",
            )
            .unwrap();
        client
            .batch_execute("BEGIN; DROP EXTENSION mailroom; CREATE EXTENSION mailroom; COMMIT")
            .unwrap();
    }
}

#[test]
fn a_rolled_back_drop_extension_changes_nothing() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    let worker = find_worker(&mut client).unwrap();
    client
        .batch_execute("BEGIN; DROP EXTENSION mailroom; ROLLBACK")
        .unwrap();
    expect_mail(&mut client, "a");
    assert_eq!(find_worker(&mut client), Some(worker));
}

#[test]
fn drop_database_succeeds_at_the_first_try() {
    let cluster = Cluster::start(AT_ONCE);
    let mut other = cluster.connect("postgres");
    for round in 0..5 {
        let mut client = cluster.create_database("app");
        expect_mail(&mut client, &format!("a{round}"));
        drop(client);
        other.batch_execute("DROP DATABASE app").unwrap();
        wait_for_workers(&mut other, &[]);
    }
    // Not even a moment after the extension was made, when the worker is only just starting.
    for _ in 0..20 {
        drop(cluster.create_database("app"));
        other.batch_execute("DROP DATABASE app").unwrap();
    }
    wait_for_workers(&mut other, &[]);
    assert!(
        !cluster.log().contains("FATAL:  database"),
        "a worker was sent into a dropped database"
    );
}

#[test]
fn a_drop_database_that_fails_leaves_the_worker_at_work() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    expect_mail(&mut client, "a");
    // Another client is connected, so this fails after the server's five seconds.
    assert!(
        cluster
            .connect("postgres")
            .batch_execute("DROP DATABASE app")
            .is_err()
    );
    wait_for_workers(&mut client, &["app"]);
    expect_mail(&mut client, "b");
}

#[test]
fn only_the_owner_can_send_a_worker_away() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    expect_mail(&mut client, "a");
    let worker = find_worker(&mut client).unwrap();
    client
        .batch_execute("CREATE ROLE mallory LOGIN CREATEDB")
        .unwrap();
    let mut mallory = cluster.connect_as("postgres", "mallory");
    for statement in [
        "DROP DATABASE app",
        "ALTER DATABASE app RENAME TO mine",
        "CREATE DATABASE mine TEMPLATE app",
    ] {
        let error = mallory.batch_execute(statement).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{statement}");
    }
    expect_mail(&mut client, "b");
    assert_eq!(find_worker(&mut client), Some(worker));
}

#[test]
fn rename_and_template_succeed_and_the_worker_comes_back() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    expect_mail(&mut client, "a");
    drop(client);
    let mut other = cluster.connect("postgres");
    other
        .batch_execute("ALTER DATABASE app RENAME TO \"The App\"")
        .unwrap();
    wait_for_workers(&mut other, &["The App"]);
    other
        .batch_execute("CREATE DATABASE copy TEMPLATE \"The App\"")
        .unwrap();
    wait_for_workers(&mut other, &["The App", "copy"]);
    let mut copy = cluster.connect("copy");
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 1);
    resume_copy(&mut copy);
    expect_mail(&mut copy, "b");
    expect_mail(&mut cluster.connect("The App"), "c");
}

#[test]
fn a_template_is_copied_by_whoever_may_copy_it() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("pattern");
    expect_mail(&mut client, "a");
    client
        .batch_execute("ALTER DATABASE pattern IS_TEMPLATE true; CREATE ROLE maker LOGIN CREATEDB")
        .unwrap();
    drop(client);
    cluster
        .connect_as("postgres", "maker")
        .batch_execute("CREATE DATABASE copy TEMPLATE pattern")
        .unwrap();
    let mut other = cluster.connect("postgres");
    wait_for_workers(&mut other, &["copy", "pattern"]);
    let mut copy = cluster.connect("copy");
    resume_copy(&mut copy);
    expect_mail(&mut copy, "b");
}

#[test]
fn an_extension_made_or_dropped_by_a_prepared_transaction_is_noticed() {
    let cluster = Cluster::start(&[
        "mailroom.batch_limit = 1",
        "mailroom.poll_interval = '1h'",
        "max_prepared_transactions = 2",
    ]);
    let mut other = cluster.connect("postgres");
    other.batch_execute("CREATE DATABASE app").unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute("BEGIN; CREATE EXTENSION mailroom; PREPARE TRANSACTION 'p'")
        .unwrap();
    // The launcher may be looking into it just now.
    wait_for_workers(&mut other, &[]);
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_for_workers(&mut other, &["app"]);
    expect_mail(&mut client, "a");
    client
        .batch_execute("BEGIN; DROP EXTENSION mailroom; PREPARE TRANSACTION 'p'")
        .unwrap();
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_for_workers(&mut other, &[]);
}

#[test]
fn a_worker_that_cannot_start_its_work_goes_with_the_extension() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    client
        .batch_execute("UPDATE pg_extension SET extversion = '0.0.9' WHERE extname = 'mailroom'")
        .unwrap();
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    eventually("its complaint", || {
        cluster
            .log()
            .contains("mailroom worker cannot start its work")
            .then_some(())
    });
    let mut client = cluster.connect("app");
    wait_for_workers(&mut client, &["app"]);
    let worker = find_worker(&mut client).unwrap();
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    eventually("the process to end", || {
        (!std::path::Path::new(&format!("/proc/{worker}")).exists()).then_some(())
    });
    wait_for_workers(&mut client, &[]);
}

#[test]
fn a_database_that_lets_nobody_in_is_tried_ever_more_slowly() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    let worker = find_worker(&mut client).unwrap();
    let oid = number(
        &mut client,
        "SELECT oid::bigint FROM pg_database WHERE datname = 'app'",
    );
    drop(client);
    let version = cluster.data().join(format!("base/{oid}/PG_VERSION"));
    let away = version.with_extension("away");
    std::fs::rename(&version, &away).unwrap();
    let mut other = cluster.connect("postgres");
    let ended = Instant::now();
    other
        .execute("SELECT pg_terminate_backend($1)", &[&worker])
        .unwrap();
    let refusals = || {
        cluster
            .log()
            .matches("mailroom worker FATAL:  \"base/")
            .count()
    };
    eventually("four starts that fail", || (refusals() == 4).then_some(()));
    // After one, two, four and eight seconds.
    let last = Instant::now();
    assert!(last - ended > Duration::from_secs(14));
    // The next one is sixteen seconds away, unless somebody says that the database is well.
    std::fs::rename(&away, &version).unwrap();
    other
        .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS true")
        .unwrap();
    wait_for_workers(&mut other, &["app"]);
    assert!(last.elapsed() < Duration::from_secs(16));
}

#[test]
fn a_worker_that_cannot_get_into_its_database_does_not_hold_up_the_others() {
    let cluster = Cluster::start(&[]);
    let mut holder = cluster.create_database("app");
    let mut client = cluster.create_database("other");
    wait_for_workers(&mut client, &["app", "other"]);
    let workers = ["app", "other"].map(|name| cluster.worker(name));
    holder
        .batch_execute("BEGIN; LOCK TABLE pg_class IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let mut terminate = |worker: i32| {
        client
            .execute("SELECT pg_terminate_backend($1)", &[&worker])
            .unwrap();
    };
    terminate(workers[0]);
    let mut waiting = || {
        eventually("a worker that waits for the lock", || {
            let rows = holder
                .query(
                    "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'pg_class'::regclass",
                    &[],
                )
                .unwrap();
            Some(rows.first()?.get::<_, i32>(0))
        })
    };
    let stuck = waiting();
    terminate(workers[1]);
    another_worker(&mut cluster.connect("other"), workers[1]);
    // It goes when it is told to, and another comes.
    terminate(stuck);
    eventually("the next one", || (waiting() != stuck).then_some(()));
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_workers(&mut client, &["app", "other"]);
}

#[test]
fn an_error_in_a_utility_statement_reaches_its_session_unchanged() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    let error = client
        .batch_execute("CREATE TABLE t (a int, a int)")
        .unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "42701");
    assert_eq!(error.detail(), None);
    assert!(
        error.file().is_some_and(|file| file.ends_with(".c")),
        "{:?}",
        error.file()
    );
    client
        .batch_execute(
            "CREATE TABLE u (a int PRIMARY KEY, b int CONSTRAINT positive CHECK (b > 0))",
        )
        .unwrap();
    client.batch_execute("INSERT INTO u VALUES (1, 1)").unwrap();
    let error = client
        .batch_execute("ALTER TABLE u ADD CONSTRAINT large CHECK (b > 10)")
        .unwrap_err();
    assert_eq!(error.as_db_error().unwrap().constraint(), Some("large"));
}

#[test]
fn beyond_max_databases_there_is_one_warning_and_the_rest_works() {
    let cluster = Cluster::start(&[
        "mailroom.batch_limit = 1",
        "mailroom.max_databases = 2",
        "max_worker_processes = 12",
    ]);
    for name in ["one", "two", "three"] {
        drop(cluster.create_database(name));
    }
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["one", "two"]);
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut client = cluster.connect("postgres");
    eventually("two workers", || {
        (served(&mut client).len() == 2).then_some(())
    });
    eventually("the warning", || {
        cluster
            .log()
            .contains("mailroom looks after 2 databases at most; some have no worker")
            .then_some(())
    });
    assert_eq!(cluster.log().matches("some have no worker").count(), 1);
    // Room for the third one, as soon as another is gone.
    let mut all = BTreeSet::from(["one", "two", "three"].map(str::to_owned));
    let first = served(&mut client).into_iter().next().unwrap();
    client
        .batch_execute(&format!("DROP DATABASE {first}"))
        .unwrap();
    all.remove(&first);
    eventually("a worker in the one that had none", || {
        (served(&mut client) == all).then_some(())
    });
}

#[test]
fn who_creates_the_extension_beyond_max_databases_is_told() {
    let cluster = Cluster::start(&["mailroom.max_databases = 1", "max_worker_processes = 12"]);
    drop(cluster.create_database("one"));
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["one"]);
    client.batch_execute("CREATE DATABASE two").unwrap();
    let told = cluster.psql("two", "CREATE EXTENSION mailroom");
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        told.contains("mailroom looks after 1 databases at most, and this one is beyond that"),
        "{told}"
    );
    cluster
        .connect("one")
        .batch_execute("DROP EXTENSION mailroom")
        .unwrap();
    wait_for_workers(&mut client, &["two"]);
}

#[test]
fn template1_is_copied_whoever_works_there() {
    let cluster = Cluster::start(AT_ONCE);
    cluster
        .connect("template1")
        .batch_execute("CREATE EXTENSION mailroom")
        .unwrap();
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["template1"]);
    client.batch_execute("CREATE DATABASE one").unwrap();
    wait_for_workers(&mut client, &["one", "template1"]);
    client
        .batch_execute("CREATE DATABASE two TEMPLATE DEFAULT")
        .unwrap();
    wait_for_workers(&mut client, &["one", "template1", "two"]);
    expect_mail(&mut cluster.connect("two"), "a");
}

#[test]
fn without_a_free_worker_process_there_is_one_warning() {
    // The launcher and the server's own logical replication launcher take both.
    let cluster = Cluster::start(&["max_worker_processes = 2"]);
    let mut client = cluster.create_database("app");
    eventually("the warning", || {
        cluster
            .log()
            .contains("mailroom cannot start a worker: no free worker process")
            .then_some(())
    });
    assert_eq!(find_worker(&mut client), None);
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    assert_eq!(number(&mut client, "SELECT mailroom_collect()"), 1);
}

#[test]
fn a_schema_of_the_extensions_name_without_it_is_left_alone() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE DATABASE decoy").unwrap();
    let mut decoy = cluster.connect("decoy");
    decoy
        .batch_execute("CREATE SCHEMA mailroom; CREATE TABLE pending (lane int, token int); CREATE TABLE accounts ()")
        .unwrap();
    drop(decoy);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut app = cluster.create_database("app");
    expect_mail(&mut app, "a");
    wait_for_workers(&mut app, &["app"]);
    let log = cluster.log();
    assert!(!log.contains("WARNING") && !log.contains("ERROR"), "{log}");
}

#[test]
fn a_database_that_was_closed_for_a_while_gets_its_worker_back() {
    let cluster = Cluster::start(AT_ONCE);
    drop(cluster.create_database("app"));
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["app"]);
    client
        .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS false")
        .unwrap();
    client
        .batch_execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'app'",
        )
        .unwrap();
    wait_for_workers(&mut client, &[]);
    // The launcher looks at it a second later, and again when it is open: after a restart, too.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!served(&mut client).contains("app"));
        client
            .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS true")
            .unwrap();
        wait_for_workers(&mut client, &["app"]);
        expect_mail(&mut cluster.connect("app"), "later");
        cluster
            .connect("app")
            .batch_execute("DELETE FROM outbox; DELETE FROM accounts")
            .unwrap();
        client
            .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS false")
            .unwrap();
        drop(client);
        cluster.stop_server(Stop::Fast);
        cluster.start_server();
        client = cluster.connect("postgres");
    }
    let log = cluster.log();
    assert!(
        !log.contains("not currently accepting connections"),
        "{log}"
    );
}

#[test]
fn a_database_whose_drop_broke_off_is_left_alone() {
    let cluster = Cluster::start(AT_ONCE);
    drop(cluster.create_database("gone"));
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["gone"]);
    // What DROP DATABASE writes before it deletes files.
    for statement in [
        "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'gone'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'gone'",
    ] {
        client.batch_execute(statement).unwrap();
    }
    wait_for_workers(&mut client, &[]);
    drop(cluster.create_database("app"));
    wait_for_workers(&mut client, &["app"]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!served(&mut client).contains("gone"));
    let log = cluster.log();
    assert!(!log.contains("invalid database"), "{log}");
}
