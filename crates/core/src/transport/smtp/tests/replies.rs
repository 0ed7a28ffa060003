use super::super::outcome::{Stage, of};
use super::super::reply::{Enhanced, Garbled, Partial, Reply};
use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Reply, Garbled> {
    let mut partial = Partial::default();
    for line in text.split("\r\n") {
        if let Some(reply) = partial.add(line.as_bytes())? {
            return Ok(reply);
        }
    }
    panic!("it does not end: {text}");
}

fn reason(text: &str) -> String {
    read(text).unwrap().reason()
}

#[test]
fn codes() {
    assert_eq!(reason("250"), "smtp 250");
    assert_eq!(reason("550 5.1.1 no such user"), "smtp 550 5.1.1");
    assert_eq!(reason("550 5.7.501"), "smtp 550 5.7.501");
    assert_eq!(reason("550-5.7.1 first\r\n550 second"), "smtp 550 5.7.1");
    assert_eq!(reason("550-first\r\n550 5.7.1 second"), "smtp 550 5.7.1");
    // Of another class, or none at all.
    for text in [
        "550 4.1.1 x",
        "550 5.1 x",
        "550 5.1.1.1 x",
        "550 5.1.1000 x",
        "550 5.1.x",
    ] {
        assert_eq!(reason(text), "smtp 550", "{text}");
    }
    for text in [
        "25 x",
        "",
        "abc",
        "250_x",
        "650 x",
        "150 x",
        "250-a\r\n251 b",
        "٢50 x",
    ] {
        assert_eq!(read(text), Err(Garbled), "{text}");
    }
}

#[test]
fn ids() {
    let id = |text: &str| read(text).unwrap().queue_id();
    for (text, expected) in [
        ("250 2.0.0 Ok: queued as 4F1B2C", "4F1B2C"),
        ("250 OK id=1tXyZ1-0004Ab-3F", "1tXyZ1-0004Ab-3F"),
        (
            "250 Ok 010001934a5b6c7d-0a1b2c3d-000000",
            "010001934a5b6c7d-0a1b2c3d-000000",
        ),
        (
            "250 2.0.0 4AO1x2yZ012345 Message accepted for delivery",
            "4AO1x2yZ012345",
        ),
        ("250 2.0.0 queued as abc.", "abc"),
        ("250-first\r\n250 Ok: Queued as X1 (10 bytes)", "X1"),
    ] {
        assert_eq!(id(text).as_deref(), Some(expected), "{text}");
    }
    let token = format!("250 queued as {}", "a".repeat(86));
    for text in [
        "250",
        "250 Ok",
        "250 2.6.0 Great",
        "250 queued as <b>",
        token.as_str(),
    ] {
        assert_eq!(id(text), None, "{text}");
    }
}

#[test]
fn what_they_mean() {
    let name = |outcome| match outcome {
        MessageOutcome::Retry { after: None, .. } => "retry",
        MessageOutcome::Throttled { after: None, .. } => "throttled",
        MessageOutcome::Refused { .. } => "refused",
        MessageOutcome::RecipientRefused { .. } => "recipient",
        MessageOutcome::RecipientDeferred { .. } => "deferred",
        MessageOutcome::AccountRefused { .. } => "broken",
        other => panic!("{other:?}"),
    };
    use Stage::*;
    for (text, stage, expected) in [
        ("421 4.3.2", Hello, "throttled"),
        ("421", Hello, "throttled"),
        ("421", Sender, "throttled"),
        ("421", Recipient, "retry"),
        ("450", Hello, "retry"),
        ("454", Sender, "throttled"),
        ("454", TextToOne, "throttled"),
        ("432 4.3.2", TextToSeveral, "throttled"),
        ("451 4.3.2", TextToOne, "throttled"),
        ("452 4.5.3", TextToSeveral, "retry"),
        ("421 4.7.0", Hello, "throttled"),
        ("554", Hello, "broken"),
        ("454 4.7.0", Tls, "retry"),
        ("502", Tls, "broken"),
        ("454 4.7.0", Login, "throttled"),
        ("454", Login, "retry"),
        ("535 5.7.8", Login, "broken"),
        ("504", Login, "broken"),
        ("530 5.7.0", Sender, "broken"),
        ("550 5.7.1", Sender, "broken"),
        ("553 5.1.8", Sender, "broken"),
        ("550 5.4.5", Sender, "broken"),
        ("552 5.3.4", Sender, "refused"),
        ("550", Sender, "refused"),
        ("452 4.3.1", Sender, "retry"),
        ("450 4.7.1", Sender, "throttled"),
        ("250", Sender, "retry"),
        ("550 5.1.1", Recipient, "recipient"),
        ("550 5.1.2", Recipient, "recipient"),
        ("501 5.1.3", Recipient, "recipient"),
        ("550 5.1.6", Recipient, "recipient"),
        ("556 5.1.10", Recipient, "recipient"),
        ("550 5.2.1", Recipient, "recipient"),
        ("552 5.2.2", Recipient, "recipient"),
        ("452 4.2.2", Recipient, "deferred"),
        ("450 4.2.0", Recipient, "deferred"),
        ("450 4.1.1", Recipient, "deferred"),
        ("450 4.1.8", Recipient, "retry"),
        ("451 4.3.0", Recipient, "retry"),
        ("451 4.7.1", Recipient, "throttled"),
        ("450", Recipient, "retry"),
        ("553 5.1.8", Recipient, "broken"),
        ("530 5.7.0", Recipient, "broken"),
        ("554 5.7.1", Recipient, "refused"),
        ("550 5.4.1", Recipient, "refused"),
        ("550", Recipient, "refused"),
        ("554 5.7.1", TextToOne, "refused"),
        ("550 5.1.1", TextToOne, "recipient"),
        ("550 5.1.1", TextToSeveral, "refused"),
        ("552 5.3.4", TextToOne, "refused"),
        ("451 4.3.0", TextToOne, "retry"),
        ("452 4.2.2", TextToOne, "deferred"),
        ("452 4.2.2", TextToSeveral, "retry"),
        ("450 4.2.0", Sender, "retry"),
        ("550 5.7.8", TextToOne, "broken"),
    ] {
        assert_eq!(
            name(of(&read(text).unwrap(), stage)),
            expected,
            "{text} {stage:?}"
        );
    }
}

#[test]
fn enhanced_codes_are_compared_without_their_class() {
    let reply = read("452 4.2.2 full").unwrap();
    assert!(
        reply
            .enhanced
            .is_some_and(|code: Enhanced| code.is_any(&[(2, 2)]))
    );
}

proptest! {
    #[test]
    fn no_text_of_the_server_gets_into_a_reason(
        code in 200..600u16,
        lines in proptest::collection::vec("[^0-9.\r\n]{0,40}|.{0,40}", 1..4),
    ) {
        let mut partial = Partial::default();
        let last = lines.len() - 1;
        for (at, line) in lines.iter().enumerate() {
            let end = if at == last { ' ' } else { '-' };
            let line = format!("{code}{end}{line}");
            if let Ok(Some(reply)) = partial.add(line.as_bytes()) {
                prop_assert_eq!(at, last);
                let shown = reply.reason();
                let digits = shown.strip_prefix("smtp ").unwrap();
                prop_assert!(digits.len() <= 13);
                prop_assert!(digits.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ' '));
            }
        }
    }

    #[test]
    fn any_line_is_part_of_a_reply_or_not(lines in proptest::collection::vec("(250|550)[- ].{0,20}|.{0,20}", 0..8)) {
        let mut partial = Partial::default();
        for line in lines {
            let _ = partial.add(line.as_bytes());
        }
    }
}
