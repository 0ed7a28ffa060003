use super::super::fixture;
use super::*;
use std::time::UNIX_EPOCH;

fn postmark() -> Postmark {
    let credentials = fixture::credentials("api_key = hunter2\nmessage_stream = outbound");
    Postmark::new("", "\"Example, Ltd.\" <noreply@example.com>", &credentials).unwrap()
}

#[test]
fn one_mail() {
    let message = fixture::message();
    let request = postmark().request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(request.uri, "https://api.postmarkapp.com/email");
    assert_eq!(request.headers["x-postmark-server-token"], "hunter2");
    assert_eq!(
        json::parse(&request.body),
        json!({
            "From": "\"Example, Ltd.\" <noreply@example.com>",
            "To": "ada@example.com",
            "Cc": "grace@example.com",
            "Bcc": "alan@example.com",
            "ReplyTo": "help@example.net, desk@example.net",
            "Subject": message.subject,
            "TextBody": message.body_text,
            "HtmlBody": message.body_html,
            "MessageStream": "outbound",
            "TrackLinks": "None",
            "TrackOpens": false,
            "Tag": "reminder",
            "Headers": [
                {"Name": "X-Mailroom-Message-ID", "Value": message.message_id},
                {"Name": "Auto-Submitted", "Value": "auto-generated"},
            ],
            "Metadata": {"message_id": message.message_id, "outbox_id": "7"},
        })
    );
}

#[test]
fn files() {
    let message = fixture::with_files();
    let request = postmark().request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(
        json::parse(&request.body)["Attachments"],
        json!([
            {
                "Name": "Rechnung \"für\" Zoë 📎.pdf",
                "ContentType": "application/pdf",
                "Content": fixture::PDF,
            },
            {
                "Name": "logo.png",
                "ContentType": "image/png",
                "ContentID": "cid:logo@example.com",
                "Content": fixture::PNG,
            },
        ])
    );
}

#[test]
fn several_mails_are_an_array() {
    let (first, second) = (fixture::plain(1), fixture::plain(2));
    let request = postmark().request(&[&first, &second], UNIX_EPOCH).unwrap();
    assert_eq!(request.uri.path(), "/email/batch");
    let body = json::parse(&request.body);
    assert_eq!(body.as_array().unwrap().len(), 2);
    assert_eq!(
        body[1]["Metadata"]["message_id"],
        second.message_id.as_str()
    );
    assert_eq!(body[1].get("Cc"), None);
}

#[test]
fn large_mails_go_alone() {
    let large = Message {
        body_text: Some("x".repeat(SHARED_BYTES)),
        ..fixture::plain(1)
    };
    assert!(postmark().may_share(&fixture::plain(1), &fixture::plain(2)));
    assert!(!postmark().may_share(&fixture::plain(1), &large));
}

#[test]
fn what_answers_to_one_mean() {
    let outcome = |status, code: u64| {
        let body = json!({"ErrorCode": code, "Message": "ada@example.com", "MessageID": "id-1"});
        fixture::outcome(&postmark(), status, &body.to_string())
    };
    assert_eq!(
        outcome(200, 0),
        MessageOutcome::Sent {
            provider_id: Some("id-1".to_owned())
        }
    );
    for code in [300, 402, 403, 411] {
        assert_eq!(
            outcome(422, code),
            MessageOutcome::Refused {
                reason: format!("http 422 ErrorCode {code}")
            }
        );
    }
    assert_eq!(
        outcome(422, 406),
        MessageOutcome::RecipientRefused {
            reason: "http 422 ErrorCode 406".to_owned(),
            is_permanent: true,
        }
    );
    for (status, code) in [
        (401, 10),
        (422, 400),
        (422, 401),
        (422, 405),
        (422, 412),
        (422, 413),
    ] {
        assert!(
            matches!(outcome(status, code), MessageOutcome::AccountRefused { .. }),
            "{code}"
        );
    }
    assert!(matches!(
        outcome(422, 1235),
        MessageOutcome::AccountRefused { .. }
    ));
    assert!(matches!(
        outcome(429, 429),
        MessageOutcome::Throttled { .. }
    ));
    assert!(matches!(outcome(503, 100), MessageOutcome::Retry { .. }));
    assert!(matches!(outcome(422, 9999), MessageOutcome::Refused { .. }));
    assert!(matches!(outcome(500, 0), MessageOutcome::Retry { .. }));
    let bare = |status, body| fixture::outcome(&postmark(), status, body);
    for odd in [
        "",
        "{}",
        "[]",
        "<html>",
        "[{\"ErrorCode\": 0}]",
        "{\"ErrorCode\": \"0\"}",
    ] {
        assert!(
            matches!(bare(200, odd), MessageOutcome::NotProvider { .. }),
            "{odd}"
        );
    }
    assert_eq!(
        bare(200, "{\"ErrorCode\": 0}"),
        MessageOutcome::Sent { provider_id: None }
    );
    assert_eq!(
        fixture::broken_off(&postmark(), 1, 200, "{\"To\": \"ada"),
        [MessageOutcome::Sent { provider_id: None }]
    );
    assert!(matches!(bare(500, "<html>"), MessageOutcome::Retry { .. }));
    assert!(matches!(
        bare(401, ""),
        MessageOutcome::AccountRefused { .. }
    ));
}

#[test]
fn each_mail_of_several_has_its_result() {
    let codes = |codes: &[u64]| {
        let results: Vec<Value> = codes
            .iter()
            .map(|code| json!({"ErrorCode": code, "MessageID": "id"}))
            .collect();
        fixture::outcomes(&postmark(), 5, 200, &json!(results).to_string())
    };
    let outcomes = codes(&[0, 406, 405, 9999, 100]);
    assert!(matches!(outcomes[0], MessageOutcome::Sent { .. }));
    assert!(matches!(
        outcomes[1],
        MessageOutcome::RecipientRefused { .. }
    ));
    assert!(matches!(outcomes[2], MessageOutcome::AccountRefused { .. }));
    assert!(matches!(outcomes[3], MessageOutcome::SendAlone { .. }));
    assert!(matches!(outcomes[4], MessageOutcome::Retry { .. }));
    let short = codes(&[0, 0]);
    assert!(
        short
            .iter()
            .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
    );
    let two = |body| fixture::outcomes(&postmark(), 2, 200, body);
    let without_code = two(r#"[{"ErrorCode": 0}, {}]"#);
    assert!(matches!(without_code[0], MessageOutcome::Sent { .. }));
    assert!(matches!(without_code[1], MessageOutcome::Ambiguous { .. }));
    for odd in ["", "[]", "{}", "[{}, {}]", r#"{"ErrorCode": 0}"#, "<html>"] {
        assert!(
            two(odd)
                .iter()
                .all(|v| matches!(v, MessageOutcome::NotProvider { .. })),
            "{odd}"
        );
    }
    let broken_off = fixture::broken_off(&postmark(), 2, 200, "[");
    assert!(
        broken_off
            .iter()
            .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
    );
    let whole = fixture::outcomes(&postmark(), 2, 422, r#"{"ErrorCode": 402}"#);
    assert!(
        whole
            .iter()
            .all(|v| matches!(v, MessageOutcome::SendAlone { .. }))
    );
    let whole = fixture::outcomes(&postmark(), 2, 401, r#"{"ErrorCode": 10}"#);
    assert!(
        whole
            .iter()
            .all(|v| matches!(v, MessageOutcome::AccountRefused { .. }))
    );
}
