//! Delivery through Amazon SES, as aws-ses-v2-local, moto and botocore implement it, through Postmark, and through the
//! documented transports of all providers.
//!
//! needs: counterparts

use std::collections::HashSet;

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{eventually, number};
use crate::counterparts::judge;
use crate::counterparts::scene::{
    Scene, count, register, send, send_rich, status, until_delivered,
};
use crate::counterparts::servers::{Moto, SesLocal};
use crate::counterparts::wiremock::WireMock;
use postgres::Client;
use serde_json::{Value, json};

const ACCESS_KEY: &str = "AKIDEXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const KEYS: &str = "access_key_id = AKIDEXAMPLE\n\
     secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n\
     region = eu-west-1\n";

/// Starts a scene that delivers through SES at this port. The access key id is no secret: each request contains it in
/// clear.
fn ses(port: u16, settings: &[&str]) -> Scene {
    Scene::start("ses", &format!("http://127.0.0.1:{port}"), KEYS, settings)
}

#[test]
fn ses_takes_single_mails_and_bulk_requests() {
    let local = SesLocal::start();
    // At this rate mail waits, and what waits is sent in batches.
    let scene = ses(local.port, &["transport.rate = 10 messages/s"]);
    let mut app = scene.cluster.connect("app");
    register(&mut app, &["ada"]);
    send_rich(&mut app, 30);
    let subjects: Vec<String> = (0..30).map(|n| format!("{{{{braces}}}} {n}")).collect();
    send(&mut app, &subjects);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 61);

    let mails = local.mails();
    assert_eq!(mails.len(), 61);
    // Each mail arrived as it was scheduled, with its braces, alone or in a batch.
    let arrived: HashSet<String> = mails
        .iter()
        .map(|mail| {
            let text = mail["body"]["text"].as_str().unwrap_or_default();
            let html = mail["body"]["html"].as_str().unwrap_or_default();
            format!(
                "{} {}\n{text}\n{html}",
                mail["destination"]["to"][0].as_str().unwrap(),
                mail["subject"].as_str().unwrap()
            )
        })
        .collect();
    let scheduled: HashSet<String> = app
        .query(
            "SELECT recipients[1] || ' ' || subject || E'\\n' || coalesce(body_text, '') || E'\\n' || coalesce(body_html, '') \
             FROM outbox WHERE token_id IS NULL",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(scheduled.len(), 60);
    for mail in &scheduled {
        assert!(arrived.contains(mail), "{mail} is not among {arrived:#?}");
    }
    for mail in &mails {
        assert_eq!(mail["from"], "Example <noreply@example.com>");
    }
    // Each mail has an id of its own from SES.
    let ids = "SELECT count(DISTINCT provider_id) FROM outbox WHERE provider_id LIKE 'ses-%'";
    assert_eq!(number(&mut app, ids), 61);
    scene.audit(&mut [&mut app]);
}

#[test]
fn mail_from_an_unverified_address_waits_until_it_is_verified() {
    let moto = Moto::start();
    let scene = ses(moto.port, &[]);
    let mut app = scene.cluster.connect("app");
    let subjects: Vec<String> = (0..100).map(|n| format!("mail {n}")).collect();
    send(&mut app, &subjects);
    eventually("the transport to be paused", || {
        status(&mut app)
            .to_string()
            .contains("the sender's address is not verified")
            .then_some(())
    });
    assert_eq!(count(&mut app, "error"), 0);
    let counted = "SELECT coalesce(string_agg(DISTINCT last_error, '; '), 'none') FROM outbox WHERE failed_attempts > 0";
    let counted: String = app.query_one(counted, &[]).unwrap().get(0);
    assert_eq!(counted, "none", "attempts were counted");
    assert!(moto.mails().is_empty());

    moto.verify_identity("noreply@example.com", "eu-west-1");
    app.batch_execute("SELECT mailroom_wake_worker()").unwrap();
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 100);
    assert_eq!(moto.mails().len(), 100);
    scene.audit(&mut [&mut app]);
}

#[test]
fn botocore_signs_the_same_requests_alike() {
    let wiremock = WireMock::shared();
    let path = "/v2/email/outbound-emails";
    wiremock.answer(
        path,
        &json!({"status": 200, "jsonBody": {"MessageId": "id"}}),
    );
    let scene = ses(wiremock.port, &[]);
    let mut app = scene.cluster.connect("app");
    register(&mut app, &["ada"]);
    send_rich(&mut app, 5);
    until_delivered(&mut app);
    let received = wiremock.received(path);
    assert_eq!(received.len(), 6);
    for request in &received {
        let ours = request.header("authorization");
        let theirs = judge::botocore_authorization(request, ACCESS_KEY, SECRET_KEY, "eu-west-1");
        assert_eq!(ours, theirs);
    }
    scene.audit(&mut [&mut app]);
}

#[test]
fn a_revoked_key_is_replaced_without_losing_a_mail() {
    let wiremock = WireMock::shared();
    let result = "{\"ErrorCode\":0,\"MessageID\":\"id\"}";
    let results = format!(
        "[{{{{#each (parseJson request.body) as |mail|}}}}{result}{{{{#unless @last}}}},{{{{/unless}}}}{{{{/each}}}}]"
    );
    let answer_to = |token: &str, response: &dyn Fn(&str) -> Value| {
        for (path, body) in [("/email", result), ("/email/batch", &results)] {
            wiremock.stub(&json!({
                "request": {
                    "method": "POST",
                    "urlPath": path,
                    "headers": {"X-Postmark-Server-Token": {"equalTo": token}},
                },
                "response": response(body),
            }));
        }
    };
    let taken =
        |body: &str| json!({"status": 200, "body": body, "transformers": ["response-template"]});
    let refused = |_: &str| json!({"status": 401, "jsonBody": {"ErrorCode": 10, "Message": "canary-7d1f0c9e"}});
    answer_to("old-token-0123456789", &taken);
    let credentials = "api_key = old-token-0123456789\n";
    let scene = Scene::start("postmark", &wiremock.url(""), credentials, &[]);
    let mut app = scene.cluster.connect("app");
    send(&mut app, &["before".to_owned()]);
    until_delivered(&mut app);

    // The key is revoked while more mail is scheduled.
    answer_to("old-token-0123456789", &refused);
    answer_to("new-token-0123456789", &taken);
    let subjects: Vec<String> = (0..40).map(|n| format!("during {n}")).collect();
    send(&mut app, &subjects);
    eventually("the transport to be found broken", || {
        status(&mut app)
            .to_string()
            .contains("credentials")
            .then_some(())
    });
    scene.write_credentials("api_key = new-token-0123456789\n");
    scene.cluster.reload();
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 41);
    assert_eq!(
        number(&mut app, "SELECT sum(failed_attempts) FROM outbox"),
        0,
        "a mail paid for the key"
    );
    // Each mail was in one request with the new key.
    let mut carried = 0;
    for path in ["/email", "/email/batch"] {
        for request in wiremock.received(path) {
            if request.header("x-postmark-server-token") == "new-token-0123456789" {
                carried += request.json().as_array().map_or(1, Vec::len);
            }
        }
    }
    assert_eq!(carried, 40);
    scene.audit(&mut [&mut app]);
}

#[test]
fn a_provider_that_takes_no_batches_gets_single_mails_and_is_not_paused() {
    let wiremock = WireMock::shared();
    let base = wiremock.path();
    let (single, batch) = (format!("{base}/email"), format!("{base}/email/batch"));
    wiremock.answer(
        &single,
        &json!({"status": 200, "jsonBody": {"ErrorCode": 0, "MessageID": "id"}}),
    );
    wiremock.answer(&batch, &json!({"status": 404}));
    let credentials = "api_key = any-token-0123456789\n";
    let scene = Scene::start("postmark", &wiremock.url(&base), credentials, &[]);
    let mut app = scene.cluster.connect("app");
    let subjects: Vec<String> = (0..60).map(|n| format!("mail {n}")).collect();
    send(&mut app, &subjects);
    until_delivered(&mut app);
    assert!(wiremock.count(&batch) > 0);
    assert_eq!(count(&mut app, "sent"), 60);
    assert_eq!(wiremock.count(&single), 60);
    assert_eq!(
        number(&mut app, "SELECT sum(failed_attempts) FROM outbox"),
        0
    );
    let log = scene.cluster.log();
    assert!(!log.contains("\" paused: "), "{log}");
}

/// Returns the block of docs/guides/transports.md for this provider: one transport, which has the provider's name.
fn block(provider: &str) -> String {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/guides/transports.md"
    ))
    .unwrap();
    let (_, rest) = page
        .split_once(&format!("```toml {provider}\n"))
        .unwrap_or_else(|| panic!("there is no documented transport for {provider}"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// Returns the block with an endpoint on this machine, and a database of its own.
fn moved(provider: &str, endpoint: &str) -> String {
    let others = block(provider);
    let others: Vec<&str> = others
        .lines()
        .filter(|line| !line.starts_with("endpoint"))
        .collect();
    format!(
        "{}\nendpoint = \"{endpoint}\"\nallowed_networks = [\"127.0.0.0/8\"]\ndatabases = [\"{provider}\"]\n",
        others.join("\n")
    )
}

/// Creates a database whose mail goes through the transport of this name, and delivers a mail.
fn follow_recipe(scene: &Scene, provider: &str) -> Client {
    let mut app = scene.cluster.connect("postgres");
    app.batch_execute(&format!("CREATE DATABASE {provider}"))
        .unwrap();
    app.batch_execute(&format!(
        "ALTER DATABASE {provider} SET mailroom.transport = '{provider}'"
    ))
    .unwrap();
    let mut app = scene.cluster.connect(provider);
    app.batch_execute("CREATE EXTENSION mailroom").unwrap();
    register(&mut app, &["ada"]);
    until_delivered(&mut app);
    assert_eq!(count(&mut app, "sent"), 1, "{provider}");
    app
}

#[test]
fn each_documented_transport_delivers() {
    let wiremock = WireMock::shared();
    // The header that a provider requires, and its response to a request with it.
    let basic = "Basic YXBpOmtleS1leGFtcGxl";
    for (path, name, value, response) in [
        (
            "/v3/mail/send",
            "Authorization",
            "Bearer SG.example",
            json!({"status": 202, "headers": {"X-Message-Id": "id"}}),
        ),
        (
            "/postmark/email",
            "X-Postmark-Server-Token",
            "00000000-0000-0000-0000-000000000000",
            json!({"status": 200, "jsonBody": {"ErrorCode": 0, "MessageID": "id", "Message": "OK"}}),
        ),
        (
            "/emails",
            "Authorization",
            "Bearer re_example",
            json!({"status": 200, "jsonBody": {"id": "id"}}),
        ),
        (
            "/v3/mg.example.com/messages",
            "Authorization",
            basic,
            json!({"status": 200, "jsonBody": {"id": "id", "message": "Queued. Thank you."}}),
        ),
    ] {
        wiremock.stub(&json!({
            "request": {"method": "POST", "urlPath": path, "headers": {name: {"equalTo": value}}},
            "response": response,
        }));
    }
    let hook = wiremock.path();
    wiremock.answer(&hook, &json!({"status": 204}));
    let local = SesLocal::start();
    let ses = format!("http://127.0.0.1:{}", local.port);
    let hooked = block("webhook");
    let (_, secret) = hooked.split_once("secret = \"").expect("a secret");
    let secret = secret.split('"').next().unwrap();
    let scene = Scene::start(
        "webhook",
        &wiremock.url(&hook),
        &format!("secret = {secret}\n"),
        // A worker for each provider, and one for `app`.
        &["max_worker_processes = 16"],
    );
    let providers = [
        ("webhook", wiremock.url(&hook)),
        ("ses", ses),
        ("sendgrid", wiremock.url("")),
        ("postmark", wiremock.url("/postmark")),
        ("resend", wiremock.url("")),
        ("mailgun", wiremock.url("")),
    ];
    // All transports are in one file.
    let all: Vec<String> = providers
        .iter()
        .map(|(provider, endpoint)| moved(provider, endpoint))
        .collect();
    write_secret(&scene.cluster, FILE, &all.join("\n"));
    let mut apps: Vec<Client> = providers
        .iter()
        .map(|(provider, _)| follow_recipe(&scene, provider))
        .collect();

    assert_eq!(
        judge::webhook_verifier(secret, &wiremock.received(&hook)),
        [true]
    );
    assert_eq!(local.mails().len(), 1);
    let form = wiremock.received("/v3/mg.example.com/messages");
    assert!(form[0].body.contains("to=ada%40example.com"));
    let mut apps: Vec<&mut Client> = apps.iter_mut().collect();
    scene.audit(&mut apps);
}
