//! Databases that are down, locked, several, or of another encoding.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use super::begin;
use super::scene::{OTHER_PASSWORD, PASSWORD, Scene, TRANSPORTS, events, schedule};
use crate::cluster::{Stop, eventually, number};
use crate::pooler::Pooler;

#[test]
fn what_a_database_cannot_take_is_posted_again_and_recorded_once() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let [first, second] = ["a@example.com", "b@example.com"].map(|to| scene.schedule(to));
    assert_eq!(listening.post("main", PASSWORD, &first).status, 200);
    scene.cluster.stop_server(Stop::Fast);
    for _ in 0..3 {
        let answer = listening.post("main", PASSWORD, &second);
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
    }
    // It works without a database.
    let forged = listening.post("main", OTHER_PASSWORD, &second);
    assert_eq!(forged.status, 401);
    scene.cluster.start_server();
    scene.client = scene.cluster.connect("app");
    eventually("the database to be used again", || {
        (listening.post("main", PASSWORD, &second).status == 200).then_some(())
    });
    assert_eq!(scene.events(), 2);
    let log = listening.program.log();
    assert_eq!(log.matches("cannot use the database").count(), 1, "{log}");
    listening
        .program
        .wait_for("the database can be used again", 1);
    // The connection was ended by the server while nothing used it.
    scene
        .client
        .batch_execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'receiver'")
        .unwrap();
    assert_eq!(listening.post("main", PASSWORD, &first).status, 200);
    // A lock on the table is waited for, but not without end.
    let mut other = scene.locked();
    let third = scene.schedule("c@example.com");
    let begin = Instant::now();
    assert_eq!(listening.post("main", PASSWORD, &third).status, 503);
    assert!(begin.elapsed() < Duration::from_secs(25));
    other.batch_execute("COMMIT").unwrap();
    assert_eq!(listening.post("main", PASSWORD, &third).status, 200);
    assert_eq!(scene.events(), 3);
}

#[test]
fn each_database_gets_the_events_of_its_transports() {
    let mut scene = Scene::start();
    let mut other = scene.cluster.create_database("other");
    scene.write(&format!(
        "{TRANSPORTS}[transports.own]\nprovider = \"postmark\"\nevent_secret = \"mailroom:hunter3\"\ndatabases = [\"app\"]\n\
         [transports.away]\nprovider = \"postmark\"\nevent_secret = \"mailroom:hunter3\"\ndatabases = [\"elsewhere\"]\n"
    ));
    let listening = scene.listen(&["app", "other"]);
    let [here, there] = [
        scene.schedule("a@example.com"),
        schedule(&mut other, "b@example.com"),
    ];
    for body in [&here, &there] {
        assert_eq!(listening.post("main", PASSWORD, body).status, 200);
    }
    assert_eq!((scene.events(), events(&mut other)), (1, 1));
    assert_eq!(listening.post("away", OTHER_PASSWORD, &here).status, 404);
    // No deliverer has published it, and no route names it, as after the last deliverer has stopped.
    // An event has another key for another transport.
    assert_eq!(
        listening.post("own", OTHER_PASSWORD, &here).body,
        "recorded"
    );
    // Without one of two databases, only what the other one alone gets is taken.
    drop(other);
    scene
        .client
        .batch_execute(
            "ALTER DATABASE other ALLOW_CONNECTIONS false; \
             SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'other'",
        )
        .unwrap();
    let third = scene.schedule("c@example.com");
    assert_eq!(listening.post("main", PASSWORD, &third).status, 503);
    assert_eq!(listening.post("own", OTHER_PASSWORD, &third).status, 200);
    scene
        .client
        .batch_execute("ALTER DATABASE other ALLOW_CONNECTIONS true")
        .unwrap();
    eventually("both to take it", || {
        (listening.post("main", PASSWORD, &third).status == 200).then_some(())
    });
    let kept = "SELECT count(*) FROM delivery_events WHERE recipient = 'c@example.com'";
    assert_eq!(
        number(&mut scene.client, kept),
        2,
        "once for each transport"
    );
}

#[test]
fn it_starts_without_its_databases() {
    let mut scene = Scene::start();
    let body = scene.schedule("a@example.com");
    scene.cluster.stop_server(Stop::Fast);
    let listening = scene.listen(&["app"]);
    assert_eq!(listening.post("main", PASSWORD, &body).status, 503);
    scene.cluster.start_server();
    scene.client = scene.cluster.connect("app");
    eventually("the database to be used", || {
        (listening.post("main", PASSWORD, &body).status == 200).then_some(())
    });
    assert_eq!(scene.events(), 1);
}

#[test]
fn a_database_of_another_encoding_gets_what_it_can_store() {
    let scene = Scene::start();
    scene
        .cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        .unwrap();
    let mut latin = scene.cluster.connect("latin");
    latin.batch_execute("CREATE EXTENSION mailroom").unwrap();
    let listening = scene.listen(&["latin"]);
    let body = String::from_utf8(schedule(&mut latin, "a@example.com")).unwrap();
    let body = body.replace("250 2.0.0 taken", "250 2.0.0 \u{e9} \u{2192}");
    let answer = listening.post("main", PASSWORD, body.as_bytes());
    assert_eq!(answer.body, "recorded");
    let detail = "SELECT detail FROM delivery_events";
    let detail: String = latin.query_one(detail, &[]).unwrap().get(0);
    assert_eq!(detail, "250 2.0.0 ? ?");
}

#[test]
fn what_a_client_does_not_wait_for_is_recorded() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let body = scene.schedule("a@example.com");
    let mut other = scene.locked();
    let stream = begin(listening.address, &body);
    scene.wait_for_lock();
    drop(stream);
    other.batch_execute("COMMIT").unwrap();
    eventually("the event", || (scene.events() == 1).then_some(()));
}

#[test]
fn what_was_answered_with_200_survives_crashes() {
    const THREADS: usize = 4;
    const MAILS: usize = 400;
    const CRASHES: usize = 3;
    let mut scene = Scene::start();
    let bodies: Vec<Vec<u8>> = (0..MAILS)
        .map(|index| scene.schedule(&format!("{index}@example.com")))
        .collect();
    let listening = scene.listen(&["app"]);
    let [taken, crashes] = [(); 2].map(|()| AtomicUsize::new(0));
    scope(|threads| {
        for part in bodies.chunks(MAILS / THREADS) {
            let (listening, taken, crashes) = (&listening, &taken, &crashes);
            threads.spawn(move || {
                let post = |body| listening.post("main", PASSWORD, body).status == 200;
                for body in part {
                    eventually("it to be taken", || post(body).then_some(()));
                    taken.fetch_add(1, Ordering::Relaxed);
                    // Posts again until the next crash.
                    eventually("a crash", || {
                        post(body);
                        let part = (crashes.load(Ordering::Relaxed) + 1) * MAILS / (CRASHES + 1);
                        (taken.load(Ordering::Relaxed) <= part).then_some(())
                    });
                }
            });
        }
        for crash in 0..CRASHES {
            // From then on all is posted again until the crash.
            eventually("as many to be taken as before a crash", || {
                let part = (crash + 1) * MAILS / (CRASHES + 1);
                (taken.load(Ordering::Relaxed) > part).then_some(())
            });
            scene.cluster.stop_server(Stop::Immediate);
            scene.cluster.start_server();
            crashes.fetch_add(1, Ordering::Relaxed);
        }
    });
    scene.client = scene.cluster.connect("app");
    let whose = "SELECT count(DISTINCT outbox_id) FROM delivery_events";
    assert_eq!(number(&mut scene.client, whose), MAILS as i64);
    assert_eq!(scene.events(), MAILS as i64, "each once");
    let log = listening.program.log();
    assert!(
        log.contains("can be used again"),
        "there was a crash: {log}"
    );
}

#[test]
fn behind_pgbouncer_in_transaction_mode_it_records() {
    let mut scene = Scene::start();
    let pooler = Pooler::start(&scene.cluster, "receiver");
    drop(pooler.connect("app"));
    let listening = scene.listen_at(&[pooler.url("app")], &[]);
    for index in 0..20 {
        let body = scene.schedule(&format!("{index}@example.com"));
        assert_eq!(listening.post("main", PASSWORD, &body).body, "recorded");
    }
    assert_eq!(scene.events(), 20);
    assert!(!listening.program.log().contains("WARNING"));
}
