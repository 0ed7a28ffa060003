//! Requests to Resend and SendGrid conform to their published API descriptions, as Prism reads them.
//!
//! Prism is a proxy in front of WireMock. It passes on valid requests, and also checks the responses. The descriptions
//! are in the folder that `MAILROOM_SPECS` names.
//!
//! needs: counterparts specs

use std::sync::OnceLock;

use crate::counterparts::http;
use crate::counterparts::scene::{Scene, count, register, send_rich, until_delivered};
use crate::counterparts::servers::Prism;
use crate::counterparts::tls::Authority;
use crate::counterparts::wiremock::WireMock;
use serde_json::{Value, json};

/// Checks that Prism refuses an invalid request: otherwise these tests would show nothing.
fn is_strict(prism: &Prism, path: &str, credentials: &str) {
    let bad = json!({"from": 7, "nonsense": true});
    let (status, answer) = http::call_with(prism.port, "POST", path, credentials, Some(&bad));
    assert_eq!(status, 422, "{answer}");
}

/// Checks that Prism complained only about the request of [`is_strict`].
fn found_no_fault(prism: &Prism) {
    let complaints = prism.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:#?}");
}

/// Returns the WireMock of this module. It is not shared, because the providers determine the paths.
fn wiremock() -> &'static WireMock {
    static OWN: OnceLock<WireMock> = OnceLock::new();
    OWN.get_or_init(|| WireMock::start(Authority::shared()))
}

#[test]
fn resend_gets_what_its_description_allows() {
    let wiremock = wiremock();
    let id = "{\"id\":\"{{randomValue type='UUID'}}\"}";
    let each = format!(
        "{{\"data\":[{{{{#each (parseJson request.body) as |mail|}}}}{id}{{{{#unless @last}}}},{{{{/unless}}}}{{{{/each}}}}]}}"
    );
    for (path, body) in [("/emails", id), ("/emails/batch", &each)] {
        wiremock.answer(
            path,
            &json!({
                "status": 200,
                "headers": {"Content-Type": "application/json"},
                "body": body,
                "transformers": ["response-template"],
            }),
        );
    }
    let prism = Prism::start("resend.yaml", &wiremock.url(""));
    is_strict(&prism, "/emails", "Authorization: Bearer re_any\r\n");
    let scene = Scene::start(
        "resend",
        &format!("http://127.0.0.1:{}", prism.port),
        "api_key = re_0123456789abcdef\n",
        // At this rate mail waits, and what waits is sent in batches.
        &["transport.rate = 10 messages/s"],
    );
    let mut app = scene.cluster.connect("app");
    register(&mut app, &["ada"]);
    send_rich(&mut app, 40);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 41);
    let without = "SELECT count(*) FROM outbox WHERE provider_id IS NULL OR failed_attempts > 0";
    assert_eq!(crate::cluster::number(&mut app, without), 0);

    let single = wiremock.received("/emails");
    let batches = wiremock.received("/emails/batch");
    assert!(!batches.is_empty(), "there was no batch");
    let mails = |request: &crate::counterparts::wiremock::Received| {
        request.json().as_array().map_or(1, Vec::len)
    };
    let carried: usize = single.iter().chain(&batches).map(mails).sum();
    assert_eq!(carried, 41);
    let mut keys: Vec<&str> = single
        .iter()
        .chain(&batches)
        .map(|request| request.header("idempotency-key"))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), single.len() + batches.len());
    found_no_fault(&prism);
    scene.audit(&mut [&mut app]);
}

#[test]
fn sendgrid_gets_what_its_description_allows() {
    let wiremock = wiremock();
    wiremock.answer(
        "/v3/mail/send",
        &json!({"status": 202, "headers": {"X-Message-Id": "sg-id"}}),
    );
    let prism = Prism::start("sendgrid_mail.json", &wiremock.url(""));
    is_strict(&prism, "/v3/mail/send", "Authorization: Bearer SG.any\r\n");
    let scene = Scene::start(
        "sendgrid",
        &format!("http://127.0.0.1:{}", prism.port),
        "api_key = SG.0123456789abcdef\n",
        &[],
    );
    let mut app = scene.cluster.connect("app");
    register(&mut app, &["ada"]);
    send_rich(&mut app, 20);
    until_delivered(&mut app);
    let good = "SELECT count(*) FROM outbox WHERE state = 'sent' AND provider_id = 'sg-id' AND failed_attempts = 0";
    assert_eq!(crate::cluster::number(&mut app, good), 21);
    let received = wiremock.received("/v3/mail/send");
    assert_eq!(received.len(), 21);
    for request in &received {
        let tracking = &request.json()["tracking_settings"]["click_tracking"];
        assert_eq!(tracking["enable"], Value::Bool(false));
    }
    found_no_fault(&prism);
    scene.audit(&mut [&mut app]);
}
