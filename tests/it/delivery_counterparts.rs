//! Delivery by webhook to WireMock, with each of its faults; the verifier of standardwebhooks checks the requests.
//!
//! needs: counterparts

use std::collections::HashMap;

use crate::counterparts::judge;
use crate::counterparts::scene::{
    NEW_SECRET, SECRET, Scene, count, register, send, told, until_delivered,
};
use crate::counterparts::tls::Authority;
use crate::counterparts::wiremock::WireMock;
use serde_json::{Value, json};

/// A response that accepts the mail at once.
fn accepted() -> Value {
    json!({"status": 204})
}

#[test]
fn the_verifier_accepts_what_is_delivered() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &[]);
    register(&mut app, &["ada", "grace"]);
    send(&mut app, &["Späte Nachricht ✉".to_owned()]);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 3);

    let received = wiremock.received(&path);
    assert_eq!(received.len(), 3);
    assert_eq!(judge::webhook_verifier(SECRET, &received), [true; 3]);
    assert_eq!(judge::webhook_verifier(NEW_SECRET, &received), [false; 3]);
    for request in &received {
        let event = request.json();
        assert_eq!(request.header("webhook-id"), event["data"]["message_id"]);
        assert_eq!(request.header("content-type"), "application/json");
    }
    let to_ada = received
        .iter()
        .map(|request| request.json())
        .find(|event| {
            event["data"]["recipients"] == json!(["ada@example.com"])
                && event["data"]["kind"] == "activation"
        })
        .expect("mail to ada");
    let link = to_ada["data"]["variables"]["link"].as_str().unwrap();
    assert!(link.starts_with("https://links.example.com/activate?token="));
    assert!(to_ada["data"]["text"].as_str().unwrap().contains(link));
    // The link works.
    let token = to_ada["data"]["variables"]["token"].as_str().unwrap();
    let outcome: String = app
        .query_one("SELECT outcome FROM mailroom_redeem($1)", &[&token])
        .unwrap()
        .get(0);
    assert_eq!(outcome, "ok");
    scene.audit(&mut [&mut app]);
}

/// The first response to a mail, the attempt that is recorded for it, and how the mail ends.
struct Case {
    name: &'static str,
    response: Value,
    /// Status code and a part of the error of the failed attempt; `None` if no attempt fails.
    told: Option<(Option<i32>, &'static str)>,
    ends: &'static str,
}

fn case(
    name: &'static str,
    response: Value,
    told: Option<(Option<i32>, &'static str)>,
    ends: &'static str,
) -> Case {
    Case {
        name,
        response,
        told,
        ends,
    }
}

#[test]
fn every_fault_ends_right_and_is_told() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    faults(wiremock, &path, &wiremock.url(&path), &[], "HTTP/1.1");
}

#[test]
fn every_fault_ends_right_and_is_told_over_http_2_and_tls() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    let authority = Authority::shared().certificate.display();
    let settings = [
        "transport.allowed_networks = '127.0.0.0/8, ::1'",
        &format!("transport.ca_file = '{authority}'"),
        // A connection that ends would end all requests in flight on it.
        "transport.concurrency = 1",
    ];
    let url = wiremock.https_url(&path);
    faults(wiremock, &path, &url, &settings, "HTTP/2.0");
}

fn faults(wiremock: &WireMock, path: &str, url: &str, settings: &[&str], protocol: &str) {
    let status = |status: i32| Some((Some(status), "http"));
    let cases = [
        case(
            "reset",
            json!({"fault": "CONNECTION_RESET_BY_PEER"}),
            Some((None, "no response")),
            "sent",
        ),
        case(
            "empty",
            json!({"fault": "EMPTY_RESPONSE"}),
            Some((None, "no response")),
            "sent",
        ),
        case(
            "garbage",
            json!({"fault": "RANDOM_DATA_THEN_CLOSE"}),
            Some((None, "no response")),
            "sent",
        ),
        case(
            "malformed",
            json!({"status": 200, "fault": "MALFORMED_RESPONSE_CHUNK"}),
            // The head of the response decides the outcome.
            None,
            "sent",
        ),
        case(
            "stalls",
            json!({"status": 204, "fixedDelayMilliseconds": 120_000}),
            Some((None, "timeout")),
            "sent",
        ),
        case(
            "dribbles too long",
            json!({"status": 200, "body": "x".repeat(2000),
                "chunkedDribbleDelay": {"numberOfChunks": 20, "totalDuration": 120_000}}),
            None,
            "sent",
        ),
        case(
            "hesitates",
            json!({"status": 204, "fixedDelayMilliseconds": 300}),
            None,
            "sent",
        ),
        case(
            "dribbles",
            json!({"status": 200, "body": "x".repeat(2000),
                "chunkedDribbleDelay": {"numberOfChunks": 5, "totalDuration": 300}}),
            None,
            "sent",
        ),
        case("408", json!({"status": 408}), status(408), "sent"),
        case("500", json!({"status": 500}), status(500), "sent"),
        // 502 and 504 throttle the transport, and are no failed attempts.
        case("502", json!({"status": 502}), None, "sent"),
        case(
            "503",
            json!({"status": 503, "headers": {"Retry-After": "1"}}),
            status(503),
            "sent",
        ),
        case(
            "504",
            json!({"status": 504, "body": "x".repeat(1_000_000)}),
            None,
            "sent",
        ),
        case(
            "301",
            json!({"status": 301, "headers": {"Location": "/elsewhere"}}),
            status(301),
            "sent",
        ),
        case(
            "307",
            json!({"status": 307, "headers": {"Location": "/elsewhere"}}),
            status(307),
            "sent",
        ),
        case(
            "429",
            json!({"status": 429, "headers": {"Retry-After": "1"}}),
            None,
            "sent",
        ),
        case("400", json!({"status": 400}), status(400), "sent"),
        case("403", json!({"status": 403}), status(403), "sent"),
        case("413", json!({"status": 413}), status(413), "sent"),
        case(
            "422",
            json!({"status": 422, "body": "no such token: canary-7d1f0c9e"}),
            status(422),
            "sent",
        ),
    ];
    wiremock.answer(path, &accepted());
    for case in &cases {
        wiremock.answer_first(path, case.name, &case.response);
    }
    wiremock.answer("/elsewhere", &accepted());
    let (scene, mut app) =
        Scene::webhook(url, &[&["transport.timeout = '15s'"], settings].concat());
    let subjects: Vec<String> = cases.iter().map(|case| case.name.to_owned()).collect();
    send(&mut app, &subjects);
    until_delivered(&mut app);

    assert_eq!(wiremock.count("/elsewhere"), 0, "a redirect was followed");
    let received = wiremock.received(path);
    assert!(
        received.iter().all(|request| request.protocol == protocol),
        "{received:?}"
    );
    for case in &cases {
        let name = case.name;
        let story = told(&mut app, name);
        let state: String = app
            .query_one(
                "SELECT state::text FROM outbox WHERE subject = $1",
                &[&name],
            )
            .unwrap()
            .get(0);
        assert_eq!(state, case.ends, "{name}: {story:?}");
        let ids: Vec<&str> = received
            .iter()
            .filter(|request| request.json()["data"]["subject"] == name)
            .map(|request| request.header("webhook-id"))
            .collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{name}: {ids:?}");
        let failed: Vec<_> = story
            .iter()
            .filter(|(outcome, ..)| ["failed", "ambiguous"].contains(&outcome.as_str()))
            .collect();
        match &case.told {
            Some((status, error)) => {
                assert_eq!(failed.len(), 1, "{name}: {story:?}");
                assert_eq!(failed[0].1, *status, "{name}: {story:?}");
                assert!(
                    failed[0].2.as_ref().unwrap().contains(error),
                    "{name}: {story:?}"
                );
            }
            None => assert!(failed.is_empty(), "{name}: {story:?}"),
        }
        let is_throttled = ["429", "502", "504"].contains(&name);
        let requests = if case.told.is_none() && !is_throttled {
            1
        } else {
            2
        };
        assert_eq!(ids.len(), requests, "{name}: {story:?}");
    }
    scene.audit(&mut [&mut app]);
}

#[test]
fn a_third_of_the_answers_fails_at_random_and_every_mail_ends_sent() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    // The first letter of a signature is random for each attempt, because the signed text contains the second of the
    // attempt.
    for (letters, response) in [
        ("A-D", json!({"status": 500})),
        ("E-H", json!({"status": 503})),
        ("I-L", json!({"fault": "CONNECTION_RESET_BY_PEER"})),
        ("M-O", json!({"fault": "EMPTY_RESPONSE"})),
        ("P-R", json!({"fault": "RANDOM_DATA_THEN_CLOSE"})),
        (
            "S-U",
            json!({"status": 200, "fault": "MALFORMED_RESPONSE_CHUNK"}),
        ),
        ("V", json!({"status": 429})),
    ] {
        wiremock.stub(&json!({
            "priority": 1,
            "request": {
                "method": "POST",
                "urlPath": path,
                "headers": {"webhook-signature": {"matches": format!("v1,[{letters}].*")}},
            },
            "response": response,
        }));
    }
    let (scene, mut app) = Scene::webhook(&wiremock.url(&path), &[]);
    let subjects: Vec<String> = (0..300).map(|n| format!("mail {n}")).collect();
    send(&mut app, &subjects);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 300);

    // Each mail was accepted once.
    let received = wiremock.received(&path);
    // The head of a response settles a mail, so a malformed body (S to U) is no failure.
    let fails = |signature: &str| matches!(signature.as_bytes()[3], b'A'..=b'R' | b'V');
    let mut accepted: HashMap<&str, usize> = HashMap::new();
    let mut failed = 0;
    for request in &received {
        if fails(request.header("webhook-signature")) {
            failed += 1;
        } else {
            *accepted.entry(request.header("webhook-id")).or_default() += 1;
        }
    }
    assert_eq!(accepted.len(), 300);
    assert!(accepted.values().all(|times| *times == 1), "{accepted:?}");
    // The probability that 50 requests or fewer fail before 300 are accepted is below 1e-10.
    assert!(failed > 50, "only {failed} failed");
    scene.audit(&mut [&mut app]);
}

#[test]
fn only_the_authority_of_ca_file_is_trusted_and_http_2_is_spoken() {
    let wiremock = WireMock::shared();
    let path = wiremock.path();
    wiremock.answer(&path, &accepted());
    let (scene, mut app) = Scene::webhook(
        &wiremock.https_url(&path),
        &["transport.allowed_networks = '127.0.0.0/8, ::1'"],
    );
    send(&mut app, &["over TLS".to_owned()]);
    let attempt = |app: &mut postgres::Client, part: &str| {
        crate::cluster::eventually("an attempt to be told", || {
            let last = app.query_opt("SELECT coalesce(last_error, '') FROM outbox WHERE last_error LIKE '%' || $1 || '%'", &[&part]);
            last.unwrap().map(|_| ())
        });
    };
    attempt(&mut app, "UnknownIssuer");
    assert_eq!(wiremock.count(&path), 0);
    // The certificate is trusted, but it is for another name than this address.
    let elsewhere = format!("https://127.0.0.1:{}{path}", wiremock.https_port);
    scene.set(&mut app, "endpoint", &elsewhere);
    scene.set(
        &mut app,
        "ca_file",
        Authority::shared().certificate.to_str().unwrap(),
    );
    attempt(&mut app, "not valid for name");
    assert_eq!(wiremock.count(&path), 0);
    scene.set(&mut app, "endpoint", &wiremock.https_url(&path));
    until_delivered(&mut app);
    let received = wiremock.received(&path);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].protocol, "HTTP/2.0");
    assert_eq!(judge::webhook_verifier(SECRET, &received), [true]);
    scene.audit(&mut [&mut app]);
}
