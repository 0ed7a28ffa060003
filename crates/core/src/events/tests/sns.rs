//! Messages of SNS: signatures, topics, certificates and URLs.

use super::fixture::{
    PASSWORD, Posted, RETENTION, assert_forged, assert_malformed, events, receiver, signatures,
    text,
};
use crate::events::sns::Certificate;
use crate::events::{Event, Received, Receiver};

fn certificate(name: &str) -> Certificate {
    Certificate::from_pem(text(&signatures(), &format!("/sns/{name}")).as_bytes()).unwrap()
}

fn posted(path: &str) -> Posted {
    Posted::new(&[], &text(&signatures(), &format!("/sns/{path}")))
}

/// As the program receives it: it fetches the certificate that the message names.
fn signed(posted: &Posted, receiver: &Receiver) -> Received {
    posted.with(|request| match receiver.certificate_url(request) {
        Err(received) => received,
        Ok(_) => receiver.receive_signed(request, &certificate("certificate")),
    })
}

fn without_secret() -> Receiver {
    receiver("ses", &[])
}

#[test]
fn a_signed_message_has_an_event_for_each_recipient() {
    let all: Vec<Vec<Event>> = (0..4)
        .map(|index| posted(&format!("notifications/{index}")))
        .map(|posted| events(signed(&posted, &without_secret())))
        .collect();
    // Versions 1 and 2, with and without a subject.
    assert!(all.iter().all(|events| *events == all[0]));
    let [ada, grace] = all[0].as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(ada.recipient.as_deref(), Some("ada@example.com"));
    assert_eq!(
        ada.provider_id.as_deref(),
        Some("0100019b-7c191be45-000000")
    );
    assert_eq!(ada.outbox_id, Some(7));
    assert!(ada.message_id.is_some());
    assert!(ada.is_permanent);
    assert_eq!(grace.status.as_deref(), Some("5.7.1"));
    assert!(!grace.is_permanent);
    assert_ne!(ada.key, grace.key);
}

#[test]
fn a_message_that_is_changed_anywhere_is_forged() {
    let receiver = without_secret();
    for index in 0..4 {
        let posted = posted(&format!("notifications/{index}"));
        for (from, to) in [
            ("ada@example.com", "eve@example.com"),
            ("19ba9823", "19ba9824"),
            ("03:04:02.345Z", "03:04:02.346Z"),
            ("\"Timestamp\"", "\"Time\""),
            ("\"Signature\": \"", "\"Signature\": \"AAAA"),
            ("\"SignatureVersion\"", "\"Version\""),
        ] {
            let from = from.replace("ada@", "Ada@");
            let from = if from == "Ada@example.com" {
                "Ada@Example.com"
            } else {
                &from
            };
            assert_forged(signed(&posted.clone().body(from, to), &receiver));
        }
    }
    let other_version = posted("notifications/1").body("Version\": \"2", "Version\": \"1");
    assert_forged(signed(&other_version, &receiver));
    let unknown_version = posted("notifications/0").body("Version\": \"1", "Version\": \"3");
    assert_forged(signed(&unknown_version, &receiver));
    let other_subject = posted("notifications/0").body("SES Email", "SES email");
    assert_forged(signed(&other_subject, &receiver));
    assert_forged(signed(&posted("other_key"), &receiver));
    let by_other = posted("notifications/1")
        .with(|request| receiver.receive_signed(request, &certificate("other_certificate")));
    assert_forged(by_other);
}

#[test]
fn a_valid_signature_of_another_topic_is_forged() {
    let posted = posted("other_topic");
    assert_forged(signed(&posted, &without_secret()));
    // Its signature is valid: with the topic of the message as ours it is genuine.
    let topic = "arn:aws:sns:us-east-1:999999999999:ses-events";
    let receiver = Receiver::new("shop", "ses", &[], Some(topic)).unwrap();
    events(signed(&posted, &receiver));
}

#[test]
fn a_certificate_is_of_sns_in_the_region_of_the_topic() {
    let receiver = without_secret();
    let url = |posted: &Posted| posted.with(|request| receiver.certificate_url(request));
    let posted = posted("notifications/1");
    let good = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem";
    assert_eq!(url(&posted).as_deref(), Ok(good));
    for bad in [
        "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-7f.pem",
        "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-7f.pem",
        "https://sns.us-east-1.amazonaws.com.evil.example/SimpleNotificationService-7f.pem",
        "https://sns.us-east-1.amazonaws.com@evil.example/SimpleNotificationService-7f.pem",
        "https://sns.us-east-1.amazonaws.com:444/SimpleNotificationService-7f.pem",
        "https://evil.s3.amazonaws.com/SimpleNotificationService-7f.pem",
        "https://sns.us-east-1.amazonaws.com/x/SimpleNotificationService-7f.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-7f.pem?x=.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-../7f.pem",
        "https://SNS.us-east-1.amazonaws.com/SimpleNotificationService-7f.pem",
        "file:///etc/passwd",
        "",
    ] {
        let changed = posted.clone().body(good, bad);
        assert!(matches!(url(&changed), Err(Received::Forged(_))), "{bad}");
        assert_forged(signed(&changed, &receiver));
    }
    // The URL is not signed, and the caller may have the certificate of another message.
    let changed = posted.clone().body(good, "https://evil.example/");
    let received =
        changed.with(|request| receiver.receive_signed(request, &certificate("certificate")));
    assert_forged(received);
    let topic = "arn:aws-cn:sns:cn-north-1:123456789012:ses-events";
    let china = Receiver::new("shop", "ses", &[], Some(topic)).unwrap();
    let host = "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-7f.pem";
    let posted = posted
        .body(&text(&signatures(), "/sns/topic"), topic)
        .body(good, host);
    let found = posted.with(|request| china.certificate_url(request));
    assert_eq!(found.as_deref(), Ok(host));
}

#[test]
fn a_subscription_is_confirmed_at_sns_only() {
    let receiver = without_secret();
    let posted = posted("confirmation");
    let Received::Confirm { url } = signed(&posted, &receiver) else {
        panic!("not a confirmation");
    };
    assert!(url.starts_with("https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&"));
    assert_forged(signed(
        &posted.clone().body("Token=2336", "Token=2337"),
        &receiver,
    ));
    assert_forged(signed(
        &posted.clone().body("\"Token\": \"2", "\"Token\": \"3"),
        &receiver,
    ));
    let end = super::sns::posted("end");
    assert_eq!(signed(&end, &receiver), Received::Ignored);
    // By password alone nothing but the host protects the caller who gets the URL.
    let by_password = crate::events::tests::fixture::receiver("ses", &[PASSWORD]);
    let body = String::from_utf8(posted.body).unwrap();
    for (from, to) in [
        (
            "https://sns.us-east-1.amazonaws.com/?",
            "https://sns.us-east-1.amazonaws.com.evil.example/?",
        ),
        (
            "https://sns.us-east-1.amazonaws.com/?",
            "http://169.254.169.254/?",
        ),
        ("Action=Confirm", "Action=Un"),
        ("ConfirmSubscription&", "ConfirmSubscription&\\n"),
    ] {
        let changed = Posted::with_password(&body, PASSWORD).body(from, to);
        assert_forged(changed.to(&by_password));
    }
}

#[test]
fn by_sql_a_message_is_genuine_by_password_and_topic() {
    let body = text(&signatures(), "/sns/notifications/1");
    let receiver = receiver("ses", &[PASSWORD]);
    let posted = Posted::with_password(&body, PASSWORD);
    assert_eq!(events(posted.to(&receiver)).len(), 2);
    // The signature is not looked at.
    let changed = posted
        .clone()
        .body("\"Signature\": \"", "\"Signature\": \"AAAA");
    events(changed.to(&receiver));
    assert_forged(
        posted
            .clone()
            .body("123456789012:ses", "123456789013:ses")
            .to(&receiver),
    );
    assert_forged(Posted::with_password(&body, "mailroom:hunter3").to(&receiver));
    assert_forged(Posted::new(&[], &body).to(&receiver));
    assert!(receiver.has_secret() && receiver.is_sns());
    // Without a secret there is no proof at all.
    assert!(!without_secret().has_secret());
    assert_forged(posted.to(&without_secret()));
    // With a secret the program wants both.
    assert_forged(signed(&Posted::new(&[], &body), &receiver));
    assert_eq!(events(signed(&posted, &receiver)).len(), 2);
    let changed = posted.body("\"Signature\": \"", "\"Signature\": \"AAAA");
    assert_forged(signed(&changed, &receiver));
}

#[test]
fn an_old_message_is_stale_and_what_is_no_message_malformed() {
    let posted = posted("notifications/1");
    let seconds = i64::try_from(RETENTION.as_secs()).unwrap();
    events(signed(
        &posted.clone().later(seconds - 10),
        &without_secret(),
    ));
    let old = posted.later(seconds);
    assert_eq!(signed(&old, &without_secret()), Received::Stale);
    let receiver = receiver("ses", &[PASSWORD]);
    let topic = text(&signatures(), "/sns/topic");
    let message = |kind: &str, id: &str, text: &str| {
        let body = serde_json::json!({
            "Type": kind, "MessageId": id, "TopicArn": topic, "Message": text,
        });
        Posted::with_password(&body.to_string(), PASSWORD).to(&receiver)
    };
    // Raw message delivery, and others.
    for body in ["", "{}", "[]", r#"{"eventType": "Send"}"#, r#"{"Type": 1}"#] {
        assert_malformed(Posted::with_password(body, PASSWORD).to(&receiver));
    }
    assert_malformed(message("Notice", "1", "{}"));
    assert_malformed(message("Notification", "", "{}"));
    assert_malformed(message("Notification", "1\n2", "{}"));
    for text in [
        "Successfully validated SNS topic for Amazon SES event publishing.",
        "{}",
        "[]",
        r#"{"eventType": "Open"}"#,
        r#"{"notificationType": "Complaint", "complaint": {"complaintFeedbackType": "not-spam"}}"#,
    ] {
        assert_eq!(
            message("Notification", "1", text),
            Received::Ignored,
            "{text}"
        );
    }
}

#[test]
fn what_is_no_certificate_is_none() {
    let pem = text(&signatures(), "/sns/certificate");
    for bad in [
        String::new(),
        pem.replace("CERTIFICATE", "PUBLIC KEY"),
        pem[..pem.len() / 2].to_owned(),
        pem.replacen("MII", "MIA", 1),
        format!("{}{pem}", "#".repeat(64 * 1024)),
    ] {
        assert!(Certificate::from_pem(bad.as_bytes()).is_none());
    }
}
