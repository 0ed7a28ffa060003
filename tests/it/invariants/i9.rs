//! I9: idle is free.

use std::collections::BTreeMap;

use crate::cluster::{bin_directory, eventually_or_tell, find_worker, has_contrib};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};
use postgres::Client;

/// The calls of each statement in database `app` since the last reset, for statements that meet this condition.
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

/// The number of times that the threads of a process have gone to sleep.
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

/// An idle worker only polls, once in each `mailroom.poll_interval`, even if it delivers. The polls are the clock of
/// this test.
// alone: under load its threads go to sleep for other reasons, too
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
    // It has delivered all sorts of mail, and more mail is scheduled for other days.
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

    let poll = include_str!("../../../sql/queries/poll.sql");
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
    // What the worker had to do after the last mail is done by then.
    looks(&mut observer, LOOKS);
    // The thread that sends must not wake up in between either. A page that must be read puts a thread to sleep as
    // well, so only three rounds in a row with too many sleeps fail.
    let mut rounds = Vec::new();
    let looked = loop {
        let before = sleeps(worker);
        let looked = looks(&mut observer, LOOKS);
        rounds.push((sleeps(worker) - before, looked));
        let (slept, looked) = rounds[rounds.len() - 1];
        // One poll may be between the two clocks at either end.
        if slept <= 4 * (looked.unsigned_abs() + 1) {
            break looked;
        }
        assert!(
            rounds.len() < 3,
            "its threads went to sleep this often in so many looks: {rounds:?}"
        );
    };
    // A poll asks for what waits, for rows to purge and, because it delivers, for mail and for the rest of the budgets.
    let sent = statements(&mut observer, "toplevel");
    assert!(sent.len() <= 4, "{sent:#?}");
    for (query, calls) in sent {
        assert!(
            calls <= looked + 1,
            "{calls} times in {looked} looks: {query}"
        );
    }
    let mut client = cluster.connect("app");
    assert_eq!(find_worker(&mut client), Some(worker));
}
