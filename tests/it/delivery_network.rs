//! Delivery under faults of the network, the clock and the administrator: HTTP/2 connections that end with requests in
//! flight, names with no, bad or mixed addresses, a system without authorities, clocks that jump, and stops at any
//! moment.
//!
//! needs: counterparts

use std::collections::HashMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::cluster::{Stop, eventually, number};
use crate::counterparts::scene::{Scene, count, send, status, until_delivered};
use crate::counterparts::servers::Leaving;
use crate::counterparts::tls::Authority;
use crate::counterparts::wiremock::WireMock;
use crate::names::{Answer, Names};
use postgres::Client;
use serde_json::{Value, json};

const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

fn accepted() -> Value {
    json!({"status": 204})
}

fn subjects(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("mail {n}")).collect()
}

/// Waits until the error of a mail or the status contains this text.
fn until_told(app: &mut Client, part: &str) {
    eventually(part, || {
        let errors = number(
            app,
            &format!("SELECT count(*) FROM outbox WHERE last_error LIKE '%{part}%'"),
        );
        (errors > 0 || status(app).to_string().contains(part)).then_some(())
    });
}

#[test]
fn http_2_connections_that_go_away_under_requests_lose_and_double_nothing() {
    let authority = Authority::shared();
    let server = Leaving::start(authority, 32);
    let ca_file = format!("transport.ca_file = '{}'", authority.certificate.display());
    let endpoint = format!("https://localhost:{}/hook", server.port);
    let networks = "transport.allowed_networks = '127.0.0.0/8, ::1'";
    let (scene, mut app) = Scene::webhook(&endpoint, &[&ca_file, networks]);
    send(&mut app, &subjects(200));
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 200);

    let mut taken: HashMap<String, usize> = HashMap::new();
    for id in server.events("taken ") {
        *taken.entry(id).or_default() += 1;
    }
    assert_eq!(taken.len(), 200);
    assert!(taken.values().all(|times| *times == 1), "{taken:?}");
    // The server did leave connections with requests in flight.
    assert!(server.events("ignored ").len() >= 16);
    // That is no failure: GOAWAY says which requests the server did not process.
    let failed = "SELECT count(*) FROM outbox_history WHERE outcome <> 'sent'";
    assert_eq!(number(&mut app, failed), 0);
    scene.audit(&mut [&mut app]);
}

#[test]
fn names_are_looked_up_and_every_address_is_judged() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    let at = |host: &str| format!("http://{host}:{}{path}", wiremock.port);
    let scene = Scene::start(
        "webhook",
        &at("nowhere.test"),
        &format!("secret = {}\n", crate::counterparts::scene::SECRET),
        &["transport.connect_timeout = '2s'"],
    );
    let dns = Names::start(&scene);
    let mut app = scene.cluster.connect("app");

    // The name does not exist, then it does.
    send(&mut app, &["nowhere".to_owned()]);
    until_told(&mut app, "nowhere.test");
    dns.say("nowhere.test", Answer::Addresses(vec![Ipv4Addr::LOCALHOST]));
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 1);

    // Only the permitted one of several addresses is connected to, at any position.
    dns.say(
        "mixed.test",
        Answer::Addresses(vec![PRIVATE, Ipv4Addr::LOCALHOST, METADATA]),
    );
    scene.set(&mut app, "endpoint", &at("mixed.test"));
    send(&mut app, &["mixed".to_owned()]);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 2);

    // No address is permitted; then one is.
    dns.say("private.test", Answer::Addresses(vec![PRIVATE, METADATA]));
    scene.set(&mut app, "endpoint", &at("private.test"));
    send(&mut app, &["private".to_owned()]);
    until_told(&mut app, "is not public");
    dns.say("private.test", Answer::Addresses(vec![Ipv4Addr::LOCALHOST]));
    scene.cluster.reload();
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 3);

    // The DNS server does not answer, or answers with an error; then it gives an address.
    for (name, bad) in [
        ("silent.test", Answer::Silence),
        ("failing.test", Answer::Failure),
    ] {
        dns.say(name, bad);
        let before = count(&mut app, "sent");
        scene.set(&mut app, "endpoint", &at(name));
        send(&mut app, &[name.to_owned()]);
        eventually("an attempt to be told", || {
            let failed = "SELECT count(*) FROM outbox_history h JOIN outbox o ON o.id = h.outbox_id \
                          WHERE o.subject LIKE '%.test' AND h.outcome IN ('failed', 'ambiguous') AND o.state <> 'sent'";
            (number(&mut app, failed) > 0).then_some(())
        });
        dns.say(name, Answer::Addresses(vec![Ipv4Addr::LOCALHOST]));
        until_delivered(&mut app);
        assert_eq!(count(&mut app, "sent"), before + 1);
    }

    assert_eq!(dns.dialled(), ["127.0.0.1"]);
    scene.audit(&mut [&mut app]);
}

#[test]
fn in_a_system_without_authorities_those_that_are_built_in_judge() {
    let authority = Authority::shared();
    let server = Leaving::start(authority, 1000);
    let endpoint = format!("https://localhost:{}/hook", server.port);
    let networks = "transport.allowed_networks = '127.0.0.0/8, ::1'";
    let (scene, app) = Scene::webhook(&endpoint, &[networks]);
    drop(app);
    let nowhere = scene.cluster.scratch().join("no-certificates");
    std::fs::create_dir(&nowhere).unwrap();
    let restart = |file: &Path| {
        scene.cluster.stop_server(Stop::Fast);
        let system = [
            ("SSL_CERT_FILE", file.to_str().unwrap()),
            ("SSL_CERT_DIR", nowhere.to_str().unwrap()),
        ];
        scene.cluster.start_server_under("", &system);
        scene.cluster.connect("app")
    };

    // Connections are made, but a server whose authority is not built in gets no mail.
    let mut app = restart(&nowhere.join("ca-certificates.crt"));
    send(&mut app, &["first".to_owned()]);
    until_told(&mut app, "UnknownIssuer");
    assert!(server.events("taken ").is_empty());

    // The authorities of the system, if there are any, and those of ca_file are trusted as before.
    app = restart(&authority.certificate);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 1);
    app = restart(&nowhere.join("ca-certificates.crt"));
    let authority = authority.certificate.to_str().unwrap();
    scene.set(&mut app, "ca_file", authority);
    send(&mut app, &["second".to_owned()]);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 2);
    scene.audit(&mut [&mut app]);
}

#[test]
fn a_clock_that_jumps_while_mail_is_under_way_loses_none() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(
        &path,
        &json!({"status": 204, "fixedDelayMilliseconds": 500}),
    );
    let (scene, app) = Scene::webhook(
        &wiremock.url(&path),
        &[
            "mailroom.poll_interval = '500ms'",
            // No request may time out: it would be sent again for another reason than the jump.
            "transport.timeout = '50s'",
        ],
    );
    drop(app);
    let file = scene.cluster.scratch().join("clock");
    let clock = File::create(&file).unwrap();
    let set = |hours: i64| {
        clock
            .write_all_at(&(hours * 3600).to_ne_bytes(), 0)
            .unwrap()
    };
    set(0);
    scene.restart_under(
        "tests/clock/offset.c",
        &[("MAILROOM_CLOCK", file.to_str().unwrap())],
    );
    let mut app = scene.cluster.connect("app");
    for hours in [2, -2, 1] {
        let before = wiremock.count(&path);
        send(&mut app, &subjects(100));
        eventually("requests under way", || {
            (wiremock.count(&path) > before).then_some(())
        });
        set(hours);
        until_delivered(&mut app);
    }
    assert_eq!(count(&mut app, "sent"), 300);
    let mut sent: HashMap<String, usize> = HashMap::new();
    for request in wiremock.received(&path) {
        *sent
            .entry(request.header("webhook-id").to_owned())
            .or_default() += 1;
    }
    assert_eq!(sent.len(), 300);
    // All leases seem to have expired at once, but no mail is sent twice: there is no other deliverer, and the worker
    // knows its requests in flight.
    let twice = sent.values().filter(|&&times| times > 1).count();
    assert_eq!(twice, 0, "were sent twice");
    scene.audit(&mut [&mut app]);
}

#[test]
fn what_is_taken_back_while_it_is_under_way_is_not_sent_a_second_time() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(
        &path,
        &json!({"status": 204, "fixedDelayMilliseconds": 500}),
    );
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &["transport.timeout = '50s'"]);
    // As if the clock jumped just after the worker has read it.
    eventually("mail to be taken back", || {
        let before = wiremock.count(&path);
        send(&mut app, &subjects(100));
        eventually("requests under way", || {
            (wiremock.count(&path) > before).then_some(())
        });
        app.batch_execute(
            "UPDATE outbox SET claimed_until = clock_timestamp() WHERE id IN \
             (SELECT id FROM outbox WHERE state = 'claimed' FOR UPDATE SKIP LOCKED); \
             SELECT mailroom_wake_worker()",
        )
        .unwrap();
        until_delivered(&mut app);
        let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
        (number(&mut app, lapsed) >= 50).then_some(())
    });
    let sent = number(&mut app, "SELECT count(*) FROM outbox");
    assert_eq!(count(&mut app, "sent"), sent);
    let requests = i64::try_from(wiremock.count(&path)).unwrap();
    assert_eq!(requests, sent, "some were sent twice");
    scene.audit(&mut [&mut app]);
}

#[test]
fn a_stop_at_any_moment_is_prompt_and_loses_nothing() {
    let wiremock = WireMock::shared();
    let good = wiremock.path();
    wiremock.answer(&good, &accepted());
    // The kernel accepts connections here, but no response ever comes.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = format!("https://127.0.0.1:{}/", mute.local_addr().unwrap().port());
    let endpoint = |response: Value| {
        let path = wiremock.path();
        wiremock.answer(&path, &response);
        (wiremock.url(&path), Some(path))
    };
    let (scene, mut app) = Scene::webhook(
        &wiremock.url(&good),
        &[
            "transport.timeout = '60s'",
            "transport.connect_timeout = '60s'",
        ],
    );
    let moments = [
        ("connecting", (mute, None)),
        (
            "waiting for an answer",
            endpoint(json!({"status": 204, "fixedDelayMilliseconds": 120_000})),
        ),
        (
            "reading the answer",
            endpoint(json!({"status": 200, "body": "x".repeat(2000),
                "chunkedDribbleDelay": {"numberOfChunks": 100, "totalDuration": 120_000}})),
        ),
        (
            "throttled",
            endpoint(json!({"status": 429, "headers": {"Retry-After": "3600"}})),
        ),
        ("broken", endpoint(json!({"status": 410}))),
        ("failing", endpoint(json!({"status": 503}))),
    ];
    for (index, (moment, (url, path))) in moments.iter().enumerate() {
        scene.set(&mut app, "endpoint", url);
        send(&mut app, &subjects(100));
        match path {
            Some(path) => eventually(moment, || (wiremock.count(path) > 0).then_some(())),
            None => eventually(moment, || (count(&mut app, "claimed") > 0).then_some(())),
        }
        // For the worker after the stop.
        scene.transports.put("endpoint", &wiremock.url(&good));
        scene.transports.write(&scene.cluster);
        drop(app);
        let took = scene.cluster.stop_server(Stop::Fast);
        // 5 s for requests in flight (mailroom.stop_grace), and what a loaded machine adds; never the timeout of 60 s.
        assert!(took < Duration::from_secs(20), "{moment}: {took:?}");
        scene.cluster.start_server();
        app = scene.cluster.connect("app");
        until_delivered(&mut app);
        let sent = i64::try_from(index + 1).unwrap() * 100;
        assert_eq!(count(&mut app, "sent"), sent, "{moment}");
    }
    assert!(!scene.cluster.log().contains("was terminated by signal"));
    scene.audit(&mut [&mut app]);
}
