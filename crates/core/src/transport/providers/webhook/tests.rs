use super::super::fixture;
use super::*;
use proptest::prelude::*;
use std::time::{Duration, UNIX_EPOCH};

const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn webhook(credentials: &str) -> Result<Webhook, Invalid> {
    Webhook::new(
        "https://a.example/hook",
        "",
        &fixture::credentials(credentials),
    )
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn signatures_are_those_of_the_specification() {
    for row in fixture::vectors("standard_webhooks") {
        let text = |name: &str| row[name].as_str().unwrap();
        let webhook = webhook(&format!("secret = {}", text("secret"))).unwrap();
        let timestamp = row["timestamp"].to_string();
        assert_eq!(
            webhook.signatures(text("id"), &timestamp, text("body").as_bytes()),
            text("signature")
        );
    }
}

#[test]
fn an_event_tells_everything_and_is_the_same_at_each_attempt() {
    let webhook = webhook(&format!("secret = {OLD}")).unwrap();
    let mut message = fixture::message();
    let first = webhook.request(&[&message], at(1_767_323_045)).unwrap();
    message.attempts = 2;
    let second = webhook.request(&[&message], at(1_767_323_105)).unwrap();
    assert_eq!(first.uri, "https://a.example/hook");
    assert_eq!(first.body, second.body);
    assert_eq!(first.headers["webhook-id"], second.headers["webhook-id"]);
    assert_eq!(first.headers["webhook-timestamp"], "1767323045");
    assert_eq!(second.headers["webhook-timestamp"], "1767323105");
    assert_ne!(
        first.headers["webhook-signature"],
        second.headers["webhook-signature"]
    );
    let body = json::parse(&first.body);
    assert_eq!(body["type"], "mail.send");
    assert_eq!(body["timestamp"], "2026-01-02T03:04:05Z");
    let data = &body["data"];
    assert_eq!(data["id"], 7);
    assert_eq!(data["message_id"], message.message_id.as_str());
    assert_eq!(data["account_id"], 3);
    assert_eq!(data["expires_at"], "2026-01-02T03:19:05Z");
    assert_eq!(data["from"], serde_json::Value::Null);
    assert_eq!(data["recipients"][0], "ada@example.com");
    assert_eq!(data["reply_to"][1], "desk@example.net");
    assert_eq!(data["text"], message.body_text.unwrap());
    assert_eq!(data["variables"]["name"], "Ada");
}

#[test]
fn an_event_has_the_files() {
    let webhook = webhook(&format!("secret = {OLD}")).unwrap();
    let data = |message: &Message| {
        let request = webhook.request(&[message], at(0)).unwrap();
        json::parse(&request.body)["data"].clone()
    };
    assert_eq!(data(&fixture::message()).get("attachments"), None);
    assert_eq!(
        data(&fixture::with_files())["attachments"],
        serde_json::json!([
            {
                "filename": "Rechnung \"für\" Zoë 📎.pdf",
                "content_type": "application/pdf",
                "content_id": null,
                "content": fixture::PDF,
            },
            {
                "filename": "logo.png",
                "content_type": "image/png",
                "content_id": "logo@example.com",
                "content": fixture::PNG,
            },
        ])
    );
}

#[test]
fn an_event_names_the_sender_of_the_transport() {
    let from = "Bücher <shop@example.com>";
    let secret = fixture::credentials(&format!("secret = {OLD}"));
    let webhook = Webhook::new("https://a.example/hook", from, &secret).unwrap();
    let message = Message {
        account_id: None,
        expires_at: None,
        ..fixture::message()
    };
    let request = webhook.request(&[&message], at(0)).unwrap();
    let body = json::parse(&request.body);
    let data = &body["data"];
    assert_eq!(data["from"], "\"Bücher\" <shop@example.com>");
    assert_eq!(data["account_id"], serde_json::Value::Null);
    assert_eq!(data["expires_at"], serde_json::Value::Null);
    let wrong = Webhook::new("https://a.example/hook", "shop", &secret);
    assert_eq!(wrong.err(), Some(Invalid::new("from", "has no @")));
}

#[test]
fn two_secrets_make_two_signatures() {
    let both = webhook(&format!("secret = {NEW}\nsecret = {OLD}")).unwrap();
    let new = webhook(&format!("secret = {NEW}")).unwrap();
    let old = webhook(&format!("secret = {OLD}")).unwrap();
    let sign = |webhook: &Webhook| webhook.signatures("id", "1", b"body");
    assert_eq!(sign(&both), format!("{} {}", sign(&new), sign(&old)));
}

#[test]
fn secrets_that_are_none_are_refused_without_being_shown() {
    let bytes = |count| STANDARD.encode(vec![7; count]);
    for good in [24, 64] {
        assert!(webhook(&format!("secret = whsec_{}", bytes(good))).is_ok());
    }
    for bad in [
        bytes(32),
        format!("whsec_{}", bytes(23)),
        format!("whsec_{}", bytes(65)),
        format!("whsec_{}=", bytes(24)),
        "whsec_".to_owned(),
    ] {
        assert_eq!(
            webhook(&format!("secret = {bad}"))
                .err()
                .map(String::from)
                .unwrap_or_default(),
            "secret is not whsec_ and 24 to 64 bytes in base64"
        );
    }
    assert_eq!(webhook("").err(), Some(Invalid::missing("secret")));
}

#[test]
fn what_answers_mean() {
    let webhook = webhook(&format!("secret = {OLD}")).unwrap();
    let outcome = |status| fixture::outcome(&webhook, status, "");
    for status in [200, 201, 202, 204] {
        assert_eq!(outcome(status), MessageOutcome::Sent { provider_id: None });
    }
    assert!(matches!(
        outcome(410),
        MessageOutcome::AccountRefused { .. }
    ));
    assert!(matches!(outcome(302), MessageOutcome::Retry { .. }));
    assert!(matches!(outcome(500), MessageOutcome::Retry { .. }));
    for status in [400, 401, 403, 404, 413, 422] {
        assert!(
            matches!(outcome(status), MessageOutcome::Retry { .. }),
            "{status}"
        );
    }
    for status in [429, 502, 504] {
        assert!(matches!(outcome(status), MessageOutcome::Throttled { .. }));
    }
    let mut headers = hyper::HeaderMap::new();
    headers.insert(PERMANENT, "true".parse().unwrap());
    let response = |status| Response {
        status,
        headers: &headers,
        body: b"",
        is_broken_off: false,
        now: UNIX_EPOCH,
    };
    assert_eq!(
        webhook.outcomes(1, &response(422)),
        [MessageOutcome::Refused {
            reason: "http 422".to_owned()
        }]
    );
    assert!(matches!(
        webhook.outcomes(1, &response(400))[..],
        [MessageOutcome::Retry { .. }]
    ));
}

proptest! {
    #[test]
    fn no_body_is_ever_quoted(body in ".{1,200}", status in 200_u16..600) {
        let webhook = webhook(&format!("secret = {OLD}")).unwrap();
        prop_assert_eq!(
            fixture::outcome(&webhook, status, &body),
            fixture::outcome(&webhook, status, "")
        );
    }

    #[test]
    fn a_message_id_with_a_line_break_is_refused(id in ".{0,5}[\r\n\0].{0,5}") {
        let webhook = webhook(&format!("secret = {OLD}")).unwrap();
        let message = Message { message_id: id, ..fixture::message() };
        prop_assert!(webhook.request(&[&message], at(0)).is_err());
    }
}
