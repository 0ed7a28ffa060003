//! Requests to Resend, and what its responses mean.

use super::*;
use crate::transport::providers::fixture;
use proptest::prelude::*;
use std::time::UNIX_EPOCH;

fn resend() -> Resend {
    let credentials = fixture::credentials("api_key = re_hunter2");
    Resend::new("", "Example <noreply@example.com>", &credentials).unwrap()
}

#[test]
fn one_mail() {
    let message = fixture::message();
    let request = resend().request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(request.uri, "https://api.resend.com/emails");
    assert_eq!(request.headers["authorization"], "Bearer re_hunter2");
    assert_eq!(
        request.headers["idempotency-key"],
        "0f8fad5b-d9cb-469f-a165-70867728950e-7-1767323045.678901"
    );
    assert!(!request.headers.contains_key("x-batch-validation"));
    assert_eq!(
        json::parse(&request.body),
        json!({
            "from": "Example <noreply@example.com>",
            "to": ["ada@example.com"],
            "cc": ["grace@example.com"],
            "bcc": ["alan@example.com"],
            "reply_to": ["help@example.net", "desk@example.net"],
            "subject": message.subject,
            "text": message.body_text,
            "html": message.body_html,
            "headers": {
                "X-Mailroom-Message-ID": message.message_id,
                "Auto-Submitted": "auto-generated",
            },
            "tags": [
                {"name": "message_id", "value": message.message_id},
                {"name": "outbox_id", "value": "7"},
                {"name": "kind", "value": "reminder"},
            ],
        })
    );
}

#[test]
fn files_go_by_the_call_for_one_mail() {
    let message = fixture::with_files();
    let request = resend().request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(request.uri.path(), SINGLE);
    assert_eq!(
        json::parse(&request.body)["attachments"],
        json!([
            {
                "filename": "Rechnung \"für\" Zoë 📎.pdf",
                "content_type": "application/pdf",
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
    let both = [&fixture::plain(1), &message];
    assert!(resend().request(&both, UNIX_EPOCH).is_err());
}

#[test]
fn the_key_of_several_is_made_of_theirs() {
    let (first, second) = (fixture::plain(1), fixture::plain(2));
    let key = |messages: &[&Message]| {
        let request = resend().request(messages, UNIX_EPOCH).unwrap();
        assert_eq!(request.headers["x-batch-validation"], "permissive");
        assert_eq!(request.uri.path(), "/emails/batch");
        let key = request.headers["idempotency-key"].to_str().unwrap();
        assert!(key.len() <= 256);
        key.to_owned()
    };
    assert_eq!(key(&[&first, &second]), key(&[&first, &second]));
    assert_ne!(key(&[&first, &second]), key(&[&second, &first]));
    assert_ne!(key(&[&first, &second]), key(&[&first, &second, &second]));
    let elsewhere = Message {
        created_at_text: "1767323045.678902".to_owned(),
        ..fixture::plain(2)
    };
    assert_ne!(key(&[&first, &second]), key(&[&first, &elsewhere]));
}

#[test]
fn what_answers_to_one_mean() {
    let outcome = |status, name: &str| {
        let body = json!({"statusCode": status, "name": name, "message": "ada@example.com"});
        fixture::outcome(&resend(), status, &body.to_string())
    };
    assert_eq!(
        fixture::outcome(&resend(), 200, r#"{"id": "49a3999c"}"#),
        MessageOutcome::Sent {
            provider_id: Some("49a3999c".to_owned())
        }
    );
    for odd in [
        "",
        "{}",
        "[]",
        "<html>",
        r#"{"id": null}"#,
        r#"{"data": [{"id": "a"}]}"#,
    ] {
        let outcome = fixture::outcome(&resend(), 200, odd);
        assert!(
            matches!(outcome, MessageOutcome::NotProvider { .. }),
            "{odd}"
        );
    }
    assert_eq!(
        fixture::broken_off(&resend(), 1, 200, r#"{"id": "49a"#),
        [MessageOutcome::Sent { provider_id: None }]
    );
    assert_eq!(
        outcome(422, "validation_error"),
        MessageOutcome::Refused {
            reason: "http 422 validation_error".to_owned()
        }
    );
    for (status, name) in [
        (401, "missing_api_key"),
        (403, "invalid_api_key"),
        (403, "validation_error"),
        (404, "not_found"),
        (422, "invalid_from_address"),
        (429, "daily_quota_exceeded"),
        (429, "monthly_quota_exceeded"),
    ] {
        assert!(
            matches!(outcome(status, name), MessageOutcome::AccountRefused { .. }),
            "{name}"
        );
    }
    let concurrent = outcome(409, "concurrent_idempotent_requests");
    assert!(matches!(concurrent, MessageOutcome::Retry { .. }));
    let other = outcome(409, "invalid_idempotent_request");
    let reason =
        "http 409 invalid_idempotent_request: its idempotency key was used for another message";
    assert_eq!(
        other,
        MessageOutcome::KeyUsed {
            reason: reason.to_owned()
        }
    );
    let limit = outcome(429, "rate_limit_exceeded");
    assert!(matches!(limit, MessageOutcome::Throttled { .. }));
    assert!(matches!(
        outcome(500, "application_error"),
        MessageOutcome::Retry { .. }
    ));
}

#[test]
fn each_mail_of_several_has_its_result() {
    let outcomes = |body: Value| fixture::outcomes(&resend(), 3, 200, &body.to_string());
    let id = |id: &str| MessageOutcome::Sent {
        provider_id: Some(id.to_owned()),
    };
    let all = outcomes(json!({"data": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}));
    assert_eq!(all, [id("a"), id("b"), id("c")]);
    let some = outcomes(json!({
        "data": [{"id": "a"}, {"id": "c"}],
        "errors": [{"index": 1, "message": "ada@example.com is bad"}],
    }));
    assert_eq!(some[0], id("a"));
    assert!(matches!(some[1], MessageOutcome::Refused { .. }));
    assert_eq!(some[2], id("c"));
    for unclear in [
        json!({"data": [{"id": "a"}]}),
        json!({"data": [], "errors": [{"index": 3}]}),
        json!({"data": [{"id": "a"}, {"id": "b"}], "errors": [{"index": 3}]}),
        json!({"data": [{"id": "a"}], "errors": [{"index": 0}, {"index": 0}]}),
        json!({"data": [{"id": "a"}, {"id": "b"}], "errors": [{"index": "0"}]}),
        json!({"errors": [{"index": 0}]}),
    ] {
        let outcomes = outcomes(unclear);
        assert!(
            outcomes
                .iter()
                .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
        );
    }
    let without_id = outcomes(json!({"data": [{"id": "a"}, {}, {"id": "c"}]}));
    assert_eq!([&without_id[0], &without_id[2]], [&id("a"), &id("c")]);
    assert!(matches!(without_id[1], MessageOutcome::Ambiguous { .. }));
    for odd in [
        json!("no"),
        json!({}),
        json!({"data": []}),
        json!({"data": [{}, {}, {}]}),
    ] {
        let outcomes = outcomes(odd);
        assert!(
            outcomes
                .iter()
                .all(|v| matches!(v, MessageOutcome::NotProvider { .. }))
        );
    }
    let broken_off = fixture::broken_off(&resend(), 3, 200, r#"{"data": ["#);
    assert!(
        broken_off
            .iter()
            .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
    );
}

#[test]
fn a_batch_that_is_refused_is_tried_apart_unless_its_key_was_used_before() {
    let outcomes = |status, name: &str| {
        let body = json!({"name": name}).to_string();
        fixture::outcomes(&resend(), 2, status, &body)
    };
    let bad = outcomes(422, "validation_error");
    assert!(
        bad.iter()
            .all(|v| matches!(v, MessageOutcome::SendAlone { .. }))
    );
    let before = outcomes(409, "invalid_idempotent_request");
    assert!(
        before
            .iter()
            .all(|v| matches!(v, MessageOutcome::KeyUsed { .. }))
    );
}

proptest! {
    #[test]
    fn any_answer_has_a_verdict_for_each(
        status in 200_u16..600, messages in 1_usize..5, body in "\\PC{0,40}|\\{\"(data|errors|name|id)\": ?(\\[(\\{\"(id|index)\": ?[0-9]\\},?){0,3}\\]|\"[a-z]{0,5}\")\\}",
    ) {
        let _ = fixture::outcomes(&resend(), messages, status, &body);
    }
}
