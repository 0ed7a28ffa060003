//! The worker as a process of the server: what it shows, what it costs, what it waits for, and when it ends.

use std::time::Duration;

use crate::cluster::{Cluster, Stop, cpu_ticks, eventually, number, signal};
use postgres::Client;

fn insert_accounts(client: &mut Client, prefix: &str, count: i64) {
    client
        .execute(
            "INSERT INTO accounts (email, login) \
             SELECT $1 || i || '@example.com', $1 || i FROM generate_series(1, $2::bigint) i",
            &[&prefix, &count],
        )
        .unwrap();
}

fn wait_for_outbox(client: &mut Client, count: i64) {
    eventually(&format!("{count} rows in the outbox"), || {
        (number(client, "SELECT count(*) FROM outbox") == count).then_some(())
    });
}

/// Returns a field of `/proc/PID/status`, in kB.
fn status_kb(pid: i32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn it_is_visible_and_reports_its_work() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 5"]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", 5);
    wait_for_outbox(&mut client, 5);
    eventually("an idle worker with a name", || {
        client
            .query_opt(
                "SELECT FROM pg_stat_activity WHERE backend_type = 'mailroom worker' \
                 AND application_name = 'mailroom' AND state = 'idle' AND datname = 'app'",
                &[],
            )
            .unwrap()
    });
    if number(
        &mut client,
        "SELECT current_setting('server_version_num')::bigint",
    ) >= 170_000
    {
        eventually("a wait that says whose it is", || {
            client
                .query_opt(
                    "SELECT FROM pg_stat_activity WHERE backend_type = 'mailroom worker' \
                     AND wait_event_type = 'Extension' AND wait_event = 'MailroomIdle'",
                    &[],
                )
                .unwrap()
        });
    }
    // Autovacuum depends on these statistics.
    let counted = "SELECT (SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'outbox') \
                   + (SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'pending')";
    eventually("its work in the statistics", || {
        (number(&mut client, counted) == 10).then_some(())
    });
}

/// I9: an idle worker costs nothing.
#[test]
fn idle_it_runs_nothing_and_says_nothing() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "autovacuum = off"]);
    let worker = cluster.worker("app");
    let state = |client: &mut Client| -> std::time::SystemTime {
        client
            .query_one(
                "SELECT state_change FROM pg_stat_activity WHERE pid = $1",
                &[&worker],
            )
            .unwrap()
            .get(0)
    };
    // A second after its start the worker reads the queue once more: it cannot tell its own notification to senders
    // from others.
    eventually("the worker to be idle", || {
        let quiet = state(&mut client).elapsed().unwrap_or_default();
        (quiet > Duration::from_secs(5)).then_some(())
    });
    let (log, ticks, change) = (cluster.log().len(), cpu_ticks(worker), state(&mut client));
    // There is no condition to wait for: the test asserts that nothing happens.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(state(&mut client), change, "it ran a transaction");
    assert!(cpu_ticks(worker) - ticks <= 1, "it used the processor");
    assert_eq!(cluster.log().len(), log, "something was logged");
}

#[test]
fn twenty_thousand_batches_take_no_memory() {
    // ANALYZE makes the worker plan its statements again, which takes memory once, independent of the number of
    // batches.
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "max_wal_size = '4GB'",
        "autovacuum = off",
    ]);
    let worker = cluster.worker("app");
    insert_accounts(&mut client, "a", 2_000);
    wait_for_outbox(&mut client, 2_000);
    let early = status_kb(worker, "RssAnon:");
    insert_accounts(&mut client, "b", 18_000);
    wait_for_outbox(&mut client, 20_000);
    assert_eq!(number(&mut client, "SELECT count(*) FROM job_runs"), 20_000);
    let late = status_kb(worker, "RssAnon:");
    assert!(
        late <= early + 512,
        "{early} kB after 2,000 batches, {late} kB after 20,000"
    );
}

#[test]
fn it_ends_with_the_postmaster() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    let worker = cluster.worker("app");
    let launcher: i32 = client
        .query_one(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'mailroom launcher'",
            &[],
        )
        .unwrap()
        .get(0);
    let pid_file = std::fs::read_to_string(cluster.data().join("postmaster.pid")).unwrap();
    signal("KILL", pid_file.lines().next().unwrap().parse().unwrap());
    for pid in [worker, launcher] {
        eventually("the process to end", || {
            (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
    }
}

#[test]
fn a_pause_holds_over_a_restart() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    cluster.worker("app");
    let pause = |client: &mut Client, call: &str| -> bool {
        client
            .query_one(&format!("SELECT {call}()"), &[])
            .unwrap()
            .get(0)
    };
    assert!(pause(&mut client, "mailroom_pause"));
    assert!(!pause(&mut client, "mailroom_pause"));
    let waits_for = |client: &mut Client, what: &str| {
        eventually(what, || {
            let row = client
                .query_one("SELECT next_wake_for, paused FROM mailroom_status()", &[])
                .unwrap();
            let next: Option<String> = row.get(0);
            next.is_some_and(|next| next.contains(what))
                .then(|| row.get::<_, bool>(1))
        })
    };
    assert!(waits_for(&mut client, "mailroom_resume()"));
    insert_accounts(&mut client, "a", 3);
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut client = cluster.connect("app");
    cluster.worker("app");
    assert!(waits_for(&mut client, "mailroom_resume()"));
    insert_accounts(&mut client, "b", 3);
    let row = client
        .query_one(
            "SELECT waiting, errors_in_a_row FROM mailroom_status()",
            &[],
        )
        .unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (6, 0));
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
    // A resume that is rolled back has no effect.
    client
        .batch_execute("BEGIN; SELECT mailroom_resume(); ROLLBACK")
        .unwrap();
    assert!(
        client
            .query_one("SELECT mailroom_wake_worker()", &[])
            .unwrap()
            .get::<_, bool>(0)
    );
    assert!(waits_for(&mut client, "mailroom_resume()"));
    assert!(pause(&mut client, "mailroom_resume"));
    wait_for_outbox(&mut client, 6);
    assert!(!waits_for(&mut client, "poll"));
}

#[test]
fn it_gives_way_to_a_lock_that_is_held_for_long() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    cluster.worker("app");
    let mut holder = cluster.connect("app");
    holder.batch_execute("BEGIN; LOCK TABLE outbox").unwrap();
    insert_accounts(&mut client, "a", 1);
    // While the worker waits for the lock, later requests for it queue behind the worker. That is why it has a lock
    // timeout.
    eventually("the worker to give up", || {
        let failed = "SELECT count(*) FROM job_runs WHERE error LIKE '%[55P03]'";
        (number(&mut client, failed) > 0).then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 1);
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 1);
}
