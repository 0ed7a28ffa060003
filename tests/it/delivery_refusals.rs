//! A transport as a whole: refused, throttled, told to wait, and beside another one.
//!
//! needs: counterparts

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{eventually, number};
use crate::counterparts::scene::{Scene, count, register, send, status, until_delivered};
use crate::counterparts::servers::SesLocal;
use crate::counterparts::wiremock::WireMock;
use serde_json::{Value, json};

fn accepted() -> Value {
    json!({"status": 204})
}

fn subjects(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("mail {n}")).collect()
}

#[test]
fn a_broken_transport_keeps_mail_and_attempts_and_recovers_by_itself() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &json!({"status": 410, "body": "canary-7d1f0c9e"}));
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &["transport.concurrency = 4"]);
    register(&mut app, &["ada"]);
    send(&mut app, &subjects(200));
    eventually("the transport to be paused", || {
        (status(&mut app)["transport_state"] == "paused").then_some(())
    });
    let told = status(&mut app);
    let reason = told["transport_reason"].as_str().unwrap();
    assert!(reason.contains("410"), "{told}");
    assert!(told["next_probe_at"].is_string(), "{told}");
    // The paused transport is probed, by one mail at a time.
    let before = wiremock.count(&path);
    eventually("a probe", || (wiremock.count(&path) > before).then_some(()));
    assert!(wiremock.count(&path) < 200, "{}", wiremock.count(&path));
    assert_eq!(
        number(&mut app, "SELECT sum(failed_attempts) FROM outbox"),
        0
    );
    assert_eq!(count(&mut app, "error"), 0);

    wiremock.answer(&path, &accepted());
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 201);
    assert_eq!(
        number(&mut app, "SELECT sum(failed_attempts) FROM outbox"),
        0
    );
    eventually("the transport to be open", || {
        (status(&mut app)["transport_state"] == "healthy").then_some(())
    });
    let log = scene.cluster.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("WARNING") && line.contains("410"));
    assert_eq!(warnings.count(), 1, "{log}");
    scene.audit(&mut [&mut app]);
}

#[test]
fn a_throttled_transport_waits_as_a_whole_and_pays_no_attempts() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    wiremock.stub(&json!({
        "priority": 1,
        "scenarioName": path,
        "requiredScenarioState": "Started",
        "newScenarioState": "has asked for less",
        "request": {"method": "POST", "urlPath": path},
        "response": {"status": 429, "headers": {"Retry-After": "3"}},
    }));
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &["transport.concurrency = 1"]);
    send(&mut app, &subjects(200));
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 200);
    assert_eq!(
        number(&mut app, "SELECT sum(failed_attempts) FROM outbox"),
        0
    );
    let received = wiremock.received(&path);
    assert_eq!(received.len(), 201);
    // Requests that were handed over when the response came may still be sent; the rest waits. The journal has the time
    // at which WireMock read a request, which may be a little late for the first.
    let soon = received
        .iter()
        .filter(|request| request.at - received[0].at < 2_500)
        .count();
    let times: Vec<i64> = received
        .iter()
        .map(|request| request.at - received[0].at)
        .collect();
    assert!(soon <= 20, "{soon} requests came in the pause: {times:?}");
    scene.audit(&mut [&mut app]);
}

#[test]
fn retry_after_is_a_floor_for_the_next_attempt_of_a_minute_at_most() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    let busy = |value: &str| json!({"status": 503, "headers": {"Retry-After": value}});
    wiremock.answer_first(&path, "in seconds", &busy("50"));
    wiremock.answer_first(&path, "at a date", &busy("Wed, 01 Jan 2200 00:00:00 GMT"));
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &[]);
    send(&mut app, &["in seconds".to_owned(), "at a date".to_owned()]);
    eventually("two failed attempts", || {
        let failed =
            "SELECT count(*) FROM outbox WHERE failed_attempts = 1 AND last_error = 'http 503'";
        (number(&mut app, failed) == 2).then_some(())
    });
    let late = "SELECT count(*) FROM outbox WHERE send_at > updated_at + interval '49 s'";
    assert_eq!(number(&mut app, late), 2);
    // One answer alone is not believed that it takes until 2200.
    let never = "SELECT count(*) FROM outbox WHERE send_at > updated_at + interval '61 s'";
    assert_eq!(number(&mut app, never), 0);
    scene.audit(&mut [&mut app]);
}

#[test]
fn databases_with_different_senders_do_not_meet() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    let local = SesLocal::start();
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &[]);
    let ses = format!(
        "\n[transports.ses]\nprovider = \"ses\"\nendpoint = \"http://127.0.0.1:{}\"\nfrom = \"other@example.com\"\n\
         allowed_networks = [\"127.0.0.0/8\"]\ndatabases = [\"other\"]\nregion = \"eu-west-1\"\n\
         access_key_id = \"AKIDEXAMPLE\"\nsecret_access_key = \"wJalrXUtnFEMI/K7MDENG\"\n",
        local.port
    );
    let both = scene.transports.render() + &ses;
    write_secret(&scene.cluster, FILE, &both);
    scene.cluster.reload();
    app.batch_execute("CREATE DATABASE other").unwrap();
    app.batch_execute("ALTER DATABASE other SET mailroom.transport = 'ses'")
        .unwrap();
    let mut other = scene.cluster.connect("other");
    other.batch_execute("CREATE EXTENSION mailroom").unwrap();
    register(&mut app, &["ada"]);
    register(&mut other, &["grace"]);
    send(&mut app, &subjects(100));
    send(&mut other, &subjects(100));
    until_delivered(&mut app);
    until_delivered(&mut other);
    assert_eq!(count(&mut app, "sent"), 101);
    assert_eq!(count(&mut other, "sent"), 101);

    let by_webhook = wiremock.received(&path);
    assert_eq!(by_webhook.len(), 101);
    assert!(
        by_webhook
            .iter()
            .all(|request| !request.body.contains("grace@"))
    );
    let by_ses = local.mails();
    assert_eq!(by_ses.len(), 101);
    assert!(
        by_ses
            .iter()
            .all(|mail| mail["from"] == "other@example.com")
    );
    assert!(
        by_ses
            .iter()
            .all(|mail| !mail.to_string().contains("webhook"))
    );
    scene.audit(&mut [&mut app, &mut other]);
}
