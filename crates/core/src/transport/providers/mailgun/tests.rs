use super::super::fixture;
use super::*;
use proptest::prelude::*;
use std::time::UNIX_EPOCH;

fn mailgun(from: &str, extra: &str) -> Result<Mailgun, Invalid> {
    let credentials = fixture::credentials(&format!("api_key = hunter2\n{extra}"));
    Mailgun::new("", from, &credentials)
}

fn example() -> Mailgun {
    mailgun("Example <noreply@mail.example.com>", "").unwrap()
}

fn decode(form: &str) -> Vec<(String, String)> {
    let part = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'+' => bytes.push(b' '),
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    let digits = std::str::from_utf8(&digits).unwrap();
                    bytes.push(u8::from_str_radix(digits, 16).unwrap());
                }
                byte => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    form.split('&')
        .map(|field| {
            let (name, value) = field.split_once('=').unwrap();
            (part(name), part(value))
        })
        .collect()
}

#[test]
fn a_mail() {
    let message = fixture::message();
    let request = example().request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(
        request.uri,
        "https://api.mailgun.net/v3/mail.example.com/messages"
    );
    // printf api:hunter2 | base64
    assert_eq!(request.headers["authorization"], "Basic YXBpOmh1bnRlcjI=");
    assert_eq!(
        request.headers["content-type"],
        "application/x-www-form-urlencoded"
    );
    let form = decode(std::str::from_utf8(&request.body).unwrap());
    let expected = [
        ("from", "Example <noreply@mail.example.com>"),
        ("to", "ada@example.com"),
        ("cc", "grace@example.com"),
        ("bcc", "alan@example.com"),
        ("subject", &message.subject),
        ("text", message.body_text.as_deref().unwrap()),
        ("html", message.body_html.as_deref().unwrap()),
        ("o:tracking", "no"),
        ("o:tracking-clicks", "no"),
        ("o:tracking-opens", "no"),
        ("h:Reply-To", "help@example.net, desk@example.net"),
        ("h:X-Mailroom-Message-ID", &message.message_id),
        ("h:Auto-Submitted", "auto-generated"),
        ("o:tag", "reminder"),
        ("v:message_id", &message.message_id),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(form, expected);
}

#[test]
fn a_mail_with_files_has_parts() {
    let message = fixture::with_files();
    let request = example().request(&[&message], UNIX_EPOCH).unwrap();
    let again = example().request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(request.body, again.body);
    let content_type = request.headers["content-type"].to_str().unwrap();
    let boundary = content_type
        .strip_prefix("multipart/form-data; boundary=")
        .unwrap();
    assert_eq!(again.headers["content-type"], content_type);
    let body = &request.body[..];
    let has = |part: &[u8]| body.windows(part.len()).any(|found| found == part);
    let part = |head: &str, content: &[u8]| {
        let start = format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n");
        [start.as_bytes(), content, b"\r\n--"].concat()
    };
    for (name, value) in [
        ("to", "ada@example.com"),
        ("subject", &message.subject),
        ("text", message.body_text.as_deref().unwrap()),
        ("h:Auto-Submitted", "auto-generated"),
        ("v:message_id", &message.message_id),
    ] {
        let field = part(&format!("name=\"{name}\""), value.as_bytes());
        assert!(has(&field), "{name}");
    }
    let head = "name=\"attachment\"; filename=\"Rechnung %22für%22 Zoë 📎.pdf\"\r\nContent-Type: application/pdf";
    assert!(has(&part(head, b"%PDF-1.7\r\n\0\xff")));
    // By its id, since the HTML refers to the name.
    let head = "name=\"inline\"; filename=\"logo@example.com\"\r\nContent-Type: image/png";
    assert!(has(&part(head, b"\x89PNG\r\n")));
    assert!(body.ends_with(format!("--{boundary}--\r\n").as_bytes()));
}

#[test]
fn the_domain_is_the_senders_unless_the_file_names_one() {
    let other = mailgun("a@example.com", "domain = mg.example.com").unwrap();
    assert_eq!(other.path, "/v3/mg.example.com/messages");
    let beyond = mailgun("a@bücher.example", "").unwrap();
    assert_eq!(beyond.path, "/v3/xn--bcher-kva.example/messages");
    assert!(mailgun("a@example.com", "domain = a/../b").is_err());
}

#[test]
fn what_answers_mean() {
    let outcome = |status, body: &str| fixture::outcome(&example(), status, body);
    assert_eq!(
        outcome(
            200,
            r#"{"id": "<1.2@mail.example.com>", "message": "Queued."}"#
        ),
        MessageOutcome::Sent {
            provider_id: Some("1.2@mail.example.com".to_owned())
        }
    );
    for odd in [
        "",
        "Mailgun Magnificent API",
        "{}",
        "[]",
        r#"{"id": 7}"#,
        r#"{"id": ""}"#,
    ] {
        assert!(
            matches!(outcome(200, odd), MessageOutcome::NotProvider { .. }),
            "{odd}"
        );
    }
    assert_eq!(
        fixture::broken_off(&example(), 1, 200, r#"{"id": "<2026"#),
        [MessageOutcome::Sent { provider_id: None }]
    );
    assert_eq!(
        outcome(
            400,
            r#"{"message": "'to' parameter is not a valid address"}"#
        ),
        MessageOutcome::Refused {
            reason: "http 400".to_owned()
        }
    );
    for status in [401, 402, 403, 404] {
        assert!(matches!(
            outcome(status, ""),
            MessageOutcome::AccountRefused { .. }
        ));
    }
    assert!(matches!(outcome(429, ""), MessageOutcome::Throttled { .. }));
    assert!(matches!(outcome(500, ""), MessageOutcome::Retry { .. }));
}

proptest! {
    #[test]
    fn a_form_is_read_as_it_was_written(subject in ".{0,20}", text in ".{1,40}") {
        let message = Message { subject: subject.clone(), body_text: Some(text.clone()), ..fixture::message() };
        let request = example().request(&[&message], UNIX_EPOCH).unwrap();
        let form = decode(std::str::from_utf8(&request.body).unwrap());
        prop_assert!(form.contains(&("subject".to_owned(), subject)));
        prop_assert!(form.contains(&("text".to_owned(), text)));
        prop_assert_eq!(form.len(), 15);
    }
}
