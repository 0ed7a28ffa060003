use super::super::fixture;
use super::*;
use proptest::prelude::*;
use std::time::UNIX_EPOCH;

const KEYS: &str = "access_key_id = AKIDEXAMPLE\nsecret_access_key = hunter2\n";

fn ses(extra: &str) -> Ses {
    let credentials = fixture::credentials(&format!("{KEYS}{extra}"));
    Ses::new("", "Bücher <noreply@example.com>", &credentials).unwrap()
}

#[test]
fn the_region_gives_the_endpoint_and_the_endpoint_the_region() {
    let error = Ses::new("", "a@example.com", &fixture::credentials(KEYS));
    assert_eq!(error.err(), Some(Invalid::missing("region")));
    let there = ses("region = eu-west-1");
    assert_eq!(there.endpoint.host(), "email.eu-west-1.amazonaws.com");
    let host = "https://email-fips.us-gov-west-1.amazonaws.com";
    let ses = Ses::new(host, "a@example.com", &fixture::credentials(KEYS)).unwrap();
    let request = ses.request(&[&fixture::plain(1)], UNIX_EPOCH).unwrap();
    let authorization = request.headers["authorization"].to_str().unwrap();
    assert!(authorization.contains("/us-gov-west-1/ses/"));
    assert_eq!(region_of("localhost"), None);
    assert_eq!(region_of("email.a.b.amazonaws.com"), None);
}

#[test]
fn one_mail_is_simple() {
    let ses = ses("region = us-east-1\nconfiguration_set = ours");
    let request = ses.request(&[&fixture::message()], UNIX_EPOCH).unwrap();
    assert_eq!(
        request.uri,
        "https://email.us-east-1.amazonaws.com/v2/email/outbound-emails"
    );
    let body = json::parse(&request.body);
    assert_eq!(
        body["FromEmailAddress"],
        "=?UTF-8?B?QsO8Y2hlcg==?= <noreply@example.com>"
    );
    assert_eq!(body["ConfigurationSetName"], "ours");
    assert_eq!(body["Destination"]["BccAddresses"][0], "alan@example.com");
    assert_eq!(
        body["ReplyToAddresses"],
        json!(["help@example.net", "desk@example.net"])
    );
    let simple = &body["Content"]["Simple"];
    assert_eq!(simple["Subject"]["Data"], "Grüße \"an\" {{ alle }}");
    assert_eq!(
        simple["Body"]["Text"]["Data"],
        "Dear Ada,\nsee {{you}} & <us>"
    );
    assert_eq!(
        simple["Headers"][1],
        json!({"Name": "Auto-Submitted", "Value": "auto-generated"})
    );
    assert_eq!(
        body["EmailTags"],
        json!([
            {"Name": "message_id", "Value": fixture::message().message_id},
            {"Name": "outbox_id", "Value": "7"},
            {"Name": "kind", "Value": "reminder"},
        ])
    );
    assert_eq!(
        body["ConfigurationOverrides"],
        json!({"Tracking": {"ClickTrackingEnabled": "DISABLED", "OpenTrackingEnabled": "DISABLED"}})
    );
    assert_eq!(simple["Headers"][0]["Name"], "X-Mailroom-Message-ID");
    assert_eq!(
        body["EmailTags"][0]["Value"],
        fixture::message().message_id.as_str()
    );
}

#[test]
fn several_share_a_template_of_variables_alone() {
    let ses = ses("region = us-east-1");
    let (first, second) = (fixture::plain(1), fixture::plain(2));
    assert!(ses.may_share(&first, &second));
    let request = ses.request(&[&first, &second], UNIX_EPOCH).unwrap();
    assert!(request.uri.path().ends_with("/outbound-bulk-emails"));
    let body = json::parse(&request.body);
    assert_eq!(
        body["DefaultContent"]["Template"]["TemplateContent"],
        json!({"Subject": "{{subject}}", "Text": "{{text}}", "Html": "{{html}}"})
    );
    let entries = body["BulkEmailEntries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    let template = &entries[1]["ReplacementEmailContent"]["ReplacementTemplate"];
    let data = json::parse(
        template["ReplacementTemplateData"]
            .as_str()
            .unwrap()
            .as_bytes(),
    );
    assert_eq!(data["text"], second.body_text.as_deref().unwrap());
    assert_eq!(data["subject"], second.subject.as_str());
    assert_eq!(
        entries[1]["ReplacementHeaders"][0]["Value"],
        second.message_id.as_str()
    );
}

#[test]
fn a_bulk_request_has_one_list_for_answers() {
    let ses = ses("region = us-east-1");
    let answered_by = |number, address: &str| Message {
        reply_to: vec![address.to_owned()],
        ..fixture::plain(number)
    };
    let (first, second) = (
        answered_by(1, "help@example.net"),
        answered_by(2, "help@example.net"),
    );
    assert!(ses.may_share(&first, &second));
    assert!(!ses.may_share(&first, &answered_by(2, "desk@example.net")));
    assert!(!ses.may_share(&first, &fixture::plain(2)));
    let request = ses.request(&[&first, &second], UNIX_EPOCH).unwrap();
    let body = json::parse(&request.body);
    assert_eq!(body["ReplyToAddresses"], json!(["help@example.net"]));
}

#[test]
fn mail_with_html_alone_has_a_text_in_a_bulk_request_too() {
    let ses = ses("region = us-east-1");
    let both = fixture::plain(1);
    let html_alone = Message {
        body_text: None,
        body_html: Some("<p>&lt;you&gt;</p>".to_owned()),
        ..fixture::plain(2)
    };
    assert!(ses.may_share(&both, &html_alone));
    let request = ses.request(&[&both, &html_alone], UNIX_EPOCH).unwrap();
    let body = json::parse(&request.body);
    let template = &body["BulkEmailEntries"][1]["ReplacementEmailContent"]["ReplacementTemplate"];
    let data = template["ReplacementTemplateData"].as_str().unwrap();
    assert_eq!(json::parse(data.as_bytes())["text"], "<you>\n");
    // What is made of its HTML counts, too.
    let long = Message {
        body_html: Some("<p>a".repeat(SHARED_BYTES / 8)),
        ..html_alone
    };
    assert!(!ses.may_share(&long, &long));
}

#[test]
fn what_does_not_fit_goes_alone() {
    let ses = ses("region = us-east-1");
    let small = fixture::plain(1);
    let no_html = Message {
        body_html: None,
        ..fixture::plain(2)
    };
    assert!(ses.may_share(&no_html, &no_html));
    assert!(!ses.may_share(&small, &no_html));
    assert!(!ses.may_share(&small, &fixture::message()));
    let large = Message {
        body_text: Some("x".repeat(SHARED_BYTES)),
        ..fixture::plain(3)
    };
    assert!(!ses.may_share(&small, &large));
    assert!(!ses.may_share(&large, &large));
}

#[test]
fn the_worst_batch_keeps_to_a_megabyte() {
    let ses = ses("region = us-east-1");
    let messages: Vec<Message> = (0..50)
        .map(|number| Message {
            subject: String::new(),
            body_text: Some("\u{1}\"\\\n".repeat(SHARED_BYTES / 18)),
            body_html: None,
            ..fixture::plain(number)
        })
        .collect();
    let all: Vec<&Message> = messages.iter().collect();
    assert!(ses.may_share(all[0], all[1]));
    let request = ses.request(&all, UNIX_EPOCH).unwrap();
    assert!(request.body.len() < 1024 * 1024, "{}", request.body.len());
}

proptest! {
    #[test]
    fn the_size_of_a_text_is_known_beforehand(text in "[\0-~ü\\\\\"\r\n\t]{0,20}") {
        let within = serde_json::to_string(&text).unwrap();
        let whole = serde_json::to_string(&within).unwrap();
        // The inner quotes are quoted, and the outer ones are there.
        prop_assert_eq!(whole.len(), quoted_twice(&text) + 6);
    }
}

#[test]
fn what_answers_to_one_mean() {
    let ses = ses("region = us-east-1");
    let outcome = |status, body: &str| fixture::outcome(&ses, status, body);
    assert_eq!(
        outcome(200, r#"{"MessageId": "0100-1"}"#),
        MessageOutcome::Sent {
            provider_id: Some("0100-1".to_owned())
        }
    );
    assert_eq!(
        fixture::broken_off(&ses, 1, 200, "<html>"),
        [MessageOutcome::Sent { provider_id: None }]
    );
    let named = |status, name: &str| outcome(status, &format!(r#"{{"__type": "{name}"}}"#));
    assert_eq!(
        named(400, "com.amazonaws.ses#MessageRejected"),
        MessageOutcome::Refused {
            reason: "http 400 MessageRejected".to_owned()
        }
    );
    for (status, name) in [
        (429, "TooManyRequestsException"),
        (400, "ThrottlingException"),
    ] {
        assert!(matches!(
            named(status, name),
            MessageOutcome::Throttled { .. }
        ));
    }
    for (status, name) in [
        (400, "LimitExceededException"),
        (400, "AccountSuspendedException"),
        (400, "SendingPausedException"),
        (400, "MailFromDomainNotVerifiedException"),
        (404, "NotFoundException"),
        (403, "InvalidSignatureException"),
        (400, "IncompleteSignature"),
    ] {
        assert!(
            matches!(named(status, name), MessageOutcome::AccountRefused { .. }),
            "{name}"
        );
    }
    assert!(matches!(outcome(503, ""), MessageOutcome::Retry { .. }));
    let rate = r#"{"__type": "ThrottlingException", "message": "Maximum sending rate exceeded."}"#;
    assert!(matches!(
        outcome(400, rate),
        MessageOutcome::Throttled { .. }
    ));
    for name in ["ThrottlingException", "TooManyRequestsException"] {
        let quota =
            format!(r#"{{"__type": "{name}", "message": "Daily message quota exceeded."}}"#);
        assert_eq!(
            outcome(400, &quota),
            MessageOutcome::AccountRefused {
                reason: format!("http 400 {name}: the quota is spent")
            }
        );
    }
}

#[test]
fn a_clock_that_is_wrong_is_named() {
    let ses = ses("region = us-east-1");
    let reason = |name: &str, message: &str| {
        let body = json!({"__type": name, "message": message}).to_string();
        let outcome = fixture::outcome(&ses, 403, &body);
        assert!(
            matches!(outcome, MessageOutcome::AccountRefused { .. }),
            "{name}"
        );
        outcome.reason().to_owned()
    };
    let clock = "the clock of this machine is wrong";
    assert!(reason("RequestExpired", "").ends_with(clock));
    for name in ["SignatureDoesNotMatch", "InvalidSignatureException"] {
        for late in [
            "Signature expired: 20261124T070000Z is now earlier than 20261124T080000Z",
            "Signature not yet current: 20261124T090000Z is still later than 20261124T080000Z",
        ] {
            assert!(reason(name, late).ends_with(clock), "{name}: {late}");
        }
        let other = reason(name, "The request signature we calculated does not match");
        assert!(other.ends_with("the secret access key or the clock is wrong"));
    }
    assert!(reason("AccessDeniedException", "").ends_with("the credentials were refused"));
}

#[test]
fn a_sender_who_is_not_verified_is_no_fault_of_the_mail() {
    let ses = ses("region = us-east-1");
    let mut headers = hyper::HeaderMap::new();
    let value = "MessageRejected:http://internal.amazon.com/coral/";
    headers.insert("x-amzn-errortype", value.parse().unwrap());
    let response = Response {
        status: 400,
        headers: &headers,
        body: b"{\"message\": \"Email address is not verified. canary@example.com\"}",
        is_broken_off: false,
        now: UNIX_EPOCH,
    };
    assert_eq!(
        ses.outcomes(1, &response),
        [MessageOutcome::AccountRefused {
            reason: "http 400 MessageRejected: the sender's address is not verified".to_owned()
        }]
    );
}

#[test]
fn each_mail_of_several_has_its_result() {
    let ses = ses("region = us-east-1");
    let results = |statuses: &[&str]| {
        let results: Vec<Value> = statuses
            .iter()
            .map(|status| json!({"Status": status, "MessageId": "id"}))
            .collect();
        let body = json!({"BulkEmailEntryResults": results}).to_string();
        fixture::outcomes(&ses, 7, 200, &body)
    };
    let outcomes = results(&[
        "SUCCESS",
        "TRANSIENT_FAILURE",
        "ACCOUNT_THROTTLED",
        "MESSAGE_REJECTED",
        "ACCOUNT_DAILY_QUOTA_EXCEEDED",
        "FAILED",
        "SOMETHING_NEW",
    ]);
    assert!(matches!(outcomes[0], MessageOutcome::Sent { .. }));
    assert!(matches!(outcomes[1], MessageOutcome::Retry { .. }));
    assert!(matches!(outcomes[2], MessageOutcome::Throttled { .. }));
    assert!(matches!(outcomes[3], MessageOutcome::SendAlone { .. }));
    assert!(matches!(outcomes[4], MessageOutcome::AccountRefused { .. }));
    assert!(matches!(outcomes[5], MessageOutcome::SendAlone { .. }));
    assert!(matches!(outcomes[6], MessageOutcome::Ambiguous { .. }));
    for name in ["NOT_FOUND", "DOES_NOT_EXIST"] {
        let name = format!("CONFIGURATION_SET_{name}");
        let outcomes = results(&[name.as_str(); 7]);
        let is_refused = |v: &_| matches!(v, MessageOutcome::AccountRefused { .. });
        assert!(outcomes.iter().all(is_refused));
    }
    let two = |body| fixture::outcomes(&ses, 2, 200, body);
    let without_id = two(
        r#"{"BulkEmailEntryResults": [{"Status": "SUCCESS", "MessageId": "id"}, {"Status": "SUCCESS"}]}"#,
    );
    assert!(matches!(without_id[0], MessageOutcome::Sent { .. }));
    assert!(matches!(without_id[1], MessageOutcome::Ambiguous { .. }));
    for odd in [
        "",
        "{}",
        "<html>",
        r#"{"MessageId": "0100-1"}"#,
        r#"{"BulkEmailEntryResults": [{}, {}]}"#,
    ] {
        assert!(
            two(odd)
                .iter()
                .all(|v| matches!(v, MessageOutcome::NotProvider { .. })),
            "{odd}"
        );
        if !odd.contains("MessageId") {
            let alone = fixture::outcome(&ses, 200, odd);
            assert!(matches!(alone, MessageOutcome::NotProvider { .. }), "{odd}");
        }
    }
    let broken_off = fixture::broken_off(&ses, 2, 200, "{");
    assert!(
        broken_off
            .iter()
            .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
    );
    let short = results(&["SUCCESS"]);
    assert!(
        short
            .iter()
            .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
    );
    let refused = fixture::outcomes(&ses, 2, 400, r#"{"__type": "BadRequestException"}"#);
    assert!(
        refused
            .iter()
            .all(|v| matches!(v, MessageOutcome::SendAlone { .. }))
    );
}

#[test]
fn a_local_part_beyond_ascii_is_refused_here_and_is_in_no_batch() {
    let all = fixture::credentials("region = eu-west-1\naccess_key_id = d\nsecret_access_key = e");
    let ses = Ses::new("", "a@example.com", &all).unwrap();
    let with = |number, address: &str| {
        let mut message = fixture::plain(number);
        message.recipients = vec![address.to_owned()];
        message
    };
    let foreign = with(1, "zo\u{eb}@example.com");
    let plain = with(2, "zoe@b\u{fc}cher.example");
    let reason = ses.request(&[&foreign], std::time::UNIX_EPOCH).err();
    let expected = "recipients[1] is not ASCII before the @, which SES does not take";
    assert_eq!(reason.as_deref(), Some(expected));
    assert!(ses.request(&[&plain], std::time::UNIX_EPOCH).is_ok());
    assert!(!ses.may_share(&plain, &foreign) && !ses.may_share(&foreign, &plain));
    assert!(ses.may_share(&plain, &plain));
}

mod files;
