//! The notifications of tokens that clients get, and tokens that are left to clients.

use super::{hear, hear_on, insert_accounts, settle, wait_for_outbox, wait_for_wake};
use crate::cluster::{Cluster, eventually, find_worker, number};
use postgres::Client;

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
            // A token that waits for others is announced as well.
            cluster.append(
                "postgresql.auto.conf",
                "mailroom.batch_limit = 9\nmailroom.batch_timeout = '1h'\n",
            );
            cluster.reload();
            insert_accounts(&mut client, "b", 1);
            hear(&mut listener);
        } else {
            // This notification arrives first if no other one was sent.
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

/// Takes the waiting tokens as the original collector does: in lines, until there is none.
fn drain(collector: &mut Client) -> Vec<String> {
    std::iter::from_fn(|| {
        collector
            .query_one("SELECT mailroom_dequeue_line()", &[])
            .unwrap()
            .get::<_, Option<String>>(0)
    })
    .collect()
}

/// Changes a setting and, once that is committed, reloads the server.
fn reload_after(client: &mut Client, change: &str) {
    client.batch_execute(change).unwrap();
    client.batch_execute("SELECT pg_reload_conf()").unwrap();
}

/// The state of the worker of a database while a collector listens beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    CollectOff,
}

#[test]
fn a_collector_that_listens_and_drains_hears_of_each_commit() {
    std::thread::scope(|scope| {
        for mode in [Mode::Running, Mode::Paused, Mode::CollectOff] {
            scope.spawn(move || it_hears_of_each_commit(mode));
        }
    });
}

fn it_hears_of_each_commit(mode: Mode) {
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
        // No notification of earlier commits is left, and I9: the worker is idle.
        settle(&mut client, &mut collector);
        // No session is notified of a rollback.
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
        // A commit after the last drain must be announced, or this waits in vain.
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

    // A request becomes a token, which is left to clients and announced to them.
    client
        .batch_execute("SELECT mailroom_request_recovery('a@example.com')")
        .unwrap();
    hear_on(&mut listener, "token_insert");
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 1);
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
    assert_eq!(drain(&mut listener).len(), 1);

    // Mail that becomes due, and claims that expire, are announced to senders.
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

    // The worker purges.
    client
        .batch_execute(
            "SELECT mailroom_cancel(id) FROM outbox; \
             UPDATE outbox SET created_at = now() - interval '1 year', ended_at = now() - interval '1 year'",
        )
        .unwrap();
    // A separate statement, because the worker wakes at once and does not see what is not committed yet.
    client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the old mail to be purged", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 0).then_some(())
    });

    // The worker collects as soon as mailroom.collect is on, without a restart.
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

    // A setting of the database takes precedence over one of the server, even over a later one.
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

    // After a reset for the database, the setting of the server applies again.
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
