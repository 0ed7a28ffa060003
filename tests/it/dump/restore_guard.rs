//! While a dump is being restored, nothing is handed out.

use std::io::Write;

use super::{BUSY, QUIET, copy_key, dump, psql};
use crate::cluster::{Cluster, eventually, number};
use postgres::Client;

/// The settings at the beginning of every script of pg_dump by which a restore is recognized.
const AS_A_DUMP: &str =
    "SET check_function_bodies = false; SET client_min_messages = warning; SET row_security = off";

/// Checks the error of a call while a dump is being restored.
fn refused(client: &mut Client, call: &str) {
    let error = client
        .query(&format!("SELECT {call}"), &[])
        .expect_err(call);
    let error = error.as_db_error().expect(call);
    assert_eq!(error.code().code(), "55000", "{call}: {error}");
    assert_eq!(
        error.message(),
        "nothing is handed out while a dump is being restored"
    );
    assert!(error.hint().is_some() && error.detail().is_some());
}

/// Whether the worker of the client's database waits for the end of a restore.
fn stands_by(client: &mut Client) -> bool {
    let reason = "SELECT next_wake_for FROM mailroom_status()";
    let reason: Option<String> = client.query_one(reason, &[]).unwrap().get(0);
    reason.as_deref() == Some("a dump is being restored")
}

#[test]
fn nothing_is_handed_out_before_all_of_it_is_there() {
    // However long the test takes, the request below comes too soon after the account's token.
    let own = [
        "mailroom.request_interval = '1h'",
        "mailroom.transports_file = 'transports.toml'",
    ];
    // The worker has a transport, of which there is no mail, and would claim from it.
    let transports = "[transports.log]\nprovider = \"log\"\n";
    let settings = [BUSY, &own].concat();
    let cluster = Cluster::start_with_file(&settings, "transports.toml", transports);
    let source = Cluster::start(QUIET);
    let mut client = source.create_database("app");
    copy_key(&source, &cluster);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i)
               FROM generate_series(1, 20) i;
             INSERT INTO templates (kind, locale, subject, body_text) VALUES ('welcome', 'en', 'Hello', 'Text');
             SELECT mailroom_send('to@example.com', kind => 'welcome', group_key => 'group');
             SELECT mailroom_request_activation('user1@example.com');",
        )
        .unwrap();
    let script = dump(&source, "app", &[]);
    // In the dump, the queues come before the tokens and the templates.
    let cut = script.find("COPY public.templates").unwrap();
    assert!(script.find("COPY public.tokens").unwrap() > cut);
    assert!(script.find("COPY public.pending").unwrap() < cut);
    let (first, second) = script.split_at(cut);

    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE copy TEMPLATE template0")
        .unwrap();
    let mut psql = psql(&cluster, "copy", "ON_ERROR_STOP=0");
    let mut input = psql.stdin.take().unwrap();
    input.write_all(first.as_bytes()).unwrap();
    // An error in another part of the dump does not end the restore.
    input.write_all(b"SELECT 1 / 0;\n").unwrap();
    input.flush().unwrap();
    let mut copy = cluster.connect("copy");
    eventually("the first half", || {
        let there = copy
            .query_one("SELECT to_regclass('link_requests') IS NOT NULL", &[])
            .unwrap()
            .get::<_, bool>(0);
        (there && number(&mut copy, "SELECT count(*) FROM link_requests") == 1).then_some(())
    });
    // The worker may have read the queue before the first row was there, and then waits until it is woken.
    eventually("the worker to stand by", || {
        copy.batch_execute("SELECT mailroom_wake_worker()").unwrap();
        stands_by(&mut copy).then_some(())
    });
    for call in [
        "mailroom_dequeue()",
        "mailroom_dequeue_line()",
        "mailroom_collect()",
        "mailroom_claim()",
        "mailroom_claim_group()",
        "mailroom_answer_requests()",
        "mailroom_purge()",
    ] {
        refused(&mut copy, call);
    }
    // When it is woken, the worker still stands by.
    copy.batch_execute("SELECT mailroom_wake_worker()").unwrap();
    assert_eq!(number(&mut copy, "SELECT count(*) FROM pending"), 20);
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 1);
    assert_eq!(number(&mut copy, "SELECT count(*) FROM job_runs"), 0);

    input.write_all(second.as_bytes()).unwrap();
    drop(input);
    let output = psql.wait_with_output().unwrap();
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("division by zero"), "{told}");
    assert_eq!(told.matches("ERROR").count(), 1, "{told}");
    // The request comes within the interval, and produces no mail.
    eventually("all of it in the outbox, though no client polls", || {
        (number(
            &mut copy,
            "SELECT count(DISTINCT token_id) FROM outbox WHERE state = 'scheduled'",
        ) == 20
            && number(&mut copy, "SELECT count(*) FROM link_requests") == 0)
            .then_some(())
    });
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 21);
    assert_eq!(
        number(&mut copy, "SELECT count(*) FROM mailroom_claim(100)"),
        21
    );
    let log = cluster.log();
    let restores = "mailroom: a dump is being restored, nothing is handed out in this database until this session ends";
    assert_eq!(log.matches(restores).count(), 1, "{log}");
    let stands_by = "mailroom worker stands by in database \"copy\" while a dump is being restored";
    assert_eq!(log.matches(stands_by).count(), 1, "{log}");
    assert!(!log.contains("WARNING"), "{log}");
}

#[test]
fn only_a_restore_is_taken_for_one() {
    let (cluster, mut client) = Cluster::start_with_app(QUIET);
    client
        .batch_execute("CREATE ROLE app LOGIN IN ROLE mailroom_app; CREATE ROLE admin LOGIN IN ROLE mailroom_admin")
        .unwrap();
    let mut logins = 0;
    let mut registers = |session: &mut Client| -> bool {
        logins += 1;
        session
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login) VALUES ('u{logins}@example.com', 'u{logins}')"
            ))
            .unwrap();
        let queued = format!(
            "SELECT count(*) FROM pending JOIN tokens t ON t.id = token_id JOIN accounts a ON a.id = account WHERE login = 'u{logins}'"
        );
        number(&mut client, &queued) == 1
    };
    // A role that cannot disable the triggers does not restore, with any settings.
    for role in ["app", "admin"] {
        let mut session = cluster.connect_as("app", role);
        session.batch_execute(AS_A_DUMP).unwrap();
        assert!(registers(&mut session), "{role}");
    }
    // Nor does a superuser who has become such a role.
    let mut session = cluster.connect("app");
    session
        .batch_execute(&format!("{AS_A_DUMP}; SET SESSION AUTHORIZATION app"))
        .unwrap();
    assert!(registers(&mut session));
    // Nor does a superuser with only two of the three settings.
    let settings: Vec<&str> = AS_A_DUMP.split("; ").collect();
    assert_eq!(settings.len(), 3);
    for left_out in 0..settings.len() {
        let mut session = cluster.connect("app");
        for (at, setting) in settings.iter().enumerate() {
            if at != left_out {
                session.batch_execute(setting).unwrap();
            }
        }
        assert!(registers(&mut session), "without {}", settings[left_out]);
    }
    // None of these sessions keeps others from dequeuing.
    let mut other = cluster.connect("app");
    other.batch_execute("SELECT mailroom_dequeue(1)").unwrap();
    // A superuser with all three settings restores, for as long as they are set.
    let mut session = cluster.connect("app");
    session.batch_execute(AS_A_DUMP).unwrap();
    assert!(!registers(&mut session));
    session.batch_execute("RESET row_security").unwrap();
    assert!(registers(&mut session));
    // The restore ends with its session; until then others are refused.
    refused(&mut other, "mailroom_dequeue(1)");
    drop(session);
    eventually("the end of the restore", || {
        other.batch_execute("SELECT mailroom_dequeue(1)").ok()
    });
    // A role that has become a superuser, as with pg_restore --role, restores as well.
    other
        .batch_execute("CREATE ROLE climber LOGIN NOINHERIT; GRANT postgres TO climber")
        .unwrap();
    let mut session = cluster.connect_as("app", "climber");
    session
        .batch_execute(&format!("{AS_A_DUMP}; SET ROLE postgres"))
        .unwrap();
    assert!(!registers(&mut session));
}

#[test]
fn a_restore_waits_for_those_who_are_handing_out() {
    let (cluster, mut consumer) = Cluster::start_with_app(QUIET);
    consumer
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'), ('b@example.com', 'b'); \
             BEGIN; SELECT mailroom_dequeue(1)",
        )
        .unwrap();
    let mut restoring = cluster.connect("app");
    let restore = std::thread::spawn(move || {
        restoring
            .batch_execute(&format!(
                "{AS_A_DUMP}; INSERT INTO link_requests (action, email) VALUES ('activation', 'c@example.com')"
            ))
            .unwrap();
        restoring
    });
    let mut other = cluster.connect("app");
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%c@example.com%' \
                 AND pid <> pg_backend_pid()";
    eventually("the restore to wait", || {
        (number(&mut other, waits) == 1).then_some(())
    });
    // Other consumers do not overtake the restore, and are refused without waiting.
    refused(&mut other, "mailroom_dequeue(1)");
    // The consumer that had begun before the restore continues.
    let rows = consumer.query("SELECT mailroom_dequeue(1)", &[]).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(number(&mut other, waits), 1);
    consumer.batch_execute("COMMIT").unwrap();
    drop(restore.join().unwrap());
    eventually("the end of the restore", || {
        other.batch_execute("SELECT mailroom_dequeue(1)").ok()
    });
}
