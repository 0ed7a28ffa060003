use super::*;
use crate::transport::providers::fixture;
use mail_parser::{Address as Read, MessageParser, MimeHeaders, PartType};
use proptest::prelude::*;
use std::time::{Duration, UNIX_EPOCH};

fn from() -> Mailbox {
    Mailbox::parse("\"Bücher, Ltd.\" <noreply@bücher.example>").unwrap()
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

fn bytes(message: &Message) -> Vec<u8> {
    build(&from(), message, now()).unwrap()
}

fn list(read: Option<&Read<'_>>) -> Vec<String> {
    let addresses = read.into_iter().flat_map(Read::iter);
    addresses
        .map(|address| address.address().unwrap().to_owned())
        .collect()
}

fn text_of(part: &PartType<'_>) -> String {
    match part {
        PartType::Text(text) | PartType::Html(text) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Text and HTML as a reader finds them.
fn bodies(bytes: &[u8]) -> (Option<String>, Option<String>) {
    let read = MessageParser::default().parse(bytes).unwrap();
    let find = |is: fn(&PartType<'_>) -> bool| {
        let mut found = read.parts.iter().filter(|part| is(&part.body));
        let text = found.next().map(|part| text_of(&part.body));
        assert!(found.next().is_none());
        text
    };
    (
        find(|part| matches!(part, PartType::Text(_))),
        find(|part| matches!(part, PartType::Html(_))),
    )
}

#[test]
fn a_mail_with_everything() {
    let message = fixture::message();
    let bytes = bytes(&message);
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.is_ascii(), "{text}");
    for line in [
        "To: <ada@example.com>",
        "Cc: <grace@example.com>",
        "Reply-To: <help@example.net>, <desk@example.net>",
        "Date: Fri, 2 Jan 2026 03:04:05 +0000",
        "Message-ID: <0f8fad5b-d9cb-469f-a165-70867728950e@xn--bcher-kva.example>",
        "Auto-Submitted: auto-generated",
        "X-Mailroom-Message-ID: 0f8fad5b-d9cb-469f-a165-70867728950e",
        "MIME-Version: 1.0",
    ] {
        assert!(text.contains(&format!("{line}\r\n")), "{line}: {text}");
    }
    // As a header: a boundary of hexadecimal digits may have these three letters.
    assert!(!text.to_ascii_lowercase().contains("\nbcc"), "{text}");
    assert!(!text.contains("alan"), "{text}");
    let read = MessageParser::default().parse(&bytes).unwrap();
    let sender = read.from().unwrap().first().unwrap();
    assert_eq!(sender.name(), Some("Bücher, Ltd."));
    assert_eq!(sender.address(), Some("noreply@xn--bcher-kva.example"));
    assert_eq!(read.subject(), Some(message.subject.as_str()));
    let kind = read.content_type().unwrap();
    assert_eq!(kind.subtype(), Some("alternative"));
    let (text, html) = bodies(&bytes);
    assert_eq!(text.unwrap(), "Dear Ada,\r\nsee {{you}} & <us>");
    assert_eq!(html, message.body_html);
}

#[test]
fn html_alone_comes_with_a_text() {
    let mut message = fixture::plain(1);
    message.body_text = None;
    let (text, html) = bodies(&bytes(&message));
    assert_eq!(text.unwrap(), "Dear Ada, see {{you}} & us\r\n");
    assert_eq!(html, message.body_html);
    message.body_html = Some("<img src=x>".to_owned());
    let (text, html) = bodies(&bytes(&message));
    assert_eq!((text, html.as_deref()), (None, Some("<img src=x>\r\n")));
}

#[test]
fn text_alone_is_no_multipart() {
    let mut message = fixture::plain(1);
    message.body_html = Some(String::new());
    let bytes = bytes(&message);
    let read = MessageParser::default().parse(&bytes).unwrap();
    let kind = read.content_type().unwrap();
    assert_eq!(kind.ctype(), "text");
    assert_eq!(kind.attribute("charset"), Some("utf-8"));
}

#[test]
fn what_cannot_be_written() {
    let refused = |change: fn(&mut Message)| {
        let mut message = fixture::plain(1);
        change(&mut message);
        build(&from(), &message, now()).unwrap_err()
    };
    assert_eq!(
        refused(|m| m.subject = "a\r\nBcc: b@example.com".to_owned()),
        "the subject has a control character"
    );
    assert_eq!(
        refused(|m| m.message_id = "a>\r\nX: y".to_owned()),
        "the message_id is no UUID"
    );
    assert_eq!(
        refused(|m| (m.body_text, m.body_html) = (None, None)),
        "there is no body"
    );
    let long = Mailbox::parse(&format!("{} <a@example.com>", "x".repeat(1000))).unwrap();
    assert_eq!(
        build(&long, &fixture::plain(1), now()).unwrap_err(),
        "the message has a line of over 998 bytes"
    );
}

#[test]
fn addresses_beyond_ascii_stay_and_want_a_server_for_it() {
    let mut message = fixture::plain(1);
    assert!(!needs_utf8(&from(), &message));
    message.recipients = vec!["jörg@example.com".to_owned()];
    assert!(needs_utf8(&from(), &message));
    let bytes = bytes(&message);
    let read = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(list(read.to()), message.recipients);
    let mut answered = fixture::plain(2);
    answered.reply_to = message.recipients;
    assert!(needs_utf8(&from(), &answered));
}

#[test]
fn many_addresses_are_folded() {
    let mut message = fixture::plain(1);
    message.recipients = (0..100)
        .map(|number| format!("{number}{}@example.com", "a".repeat(60)))
        .collect();
    let bytes = bytes(&message);
    let read = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(list(read.to()), message.recipients);
}

/// Text of all kinds that a row may hold, and some it may not.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "(.|\r|\n|\r\n|\0|\t| |=|\\.|\u{7f}|é|😀){0,60}",
        "(\n?\\.\r?\n?|From | \n|--|=\\?utf-8\\?q\\?x\\?=){0,10}",
        "[a-z ]{900,2500}",
        "[ü€]{300,900}",
        "x{1000}\n.{0,5}",
        "[a-z\0\u{1}\u{8}\u{c}\u{1b}\r\n\t]{0,12}",
    ]
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(
        subject in prop_oneof![any_text(), "[ -~]{0,300}", "(=\\?| |é|_|\\?=|a){0,90}", "(a | b|=\\?utf-8\\?q\\?x\\?=){1,4}"],
        text in proptest::option::of(any_text()),
        html in proptest::option::of(any_text()),
        reply_to in proptest::collection::vec("[a-z.+']{1,64}@[a-z]{1,60}\\.example", 0..11),
    ) {
        let mut message = fixture::plain(1);
        message.subject = subject.clone();
        message.body_text = text.clone();
        message.body_html = html.clone();
        message.reply_to = reply_to.clone();
        let text = text.filter(|text| !text.is_empty());
        let html = html.filter(|html| !html.is_empty());
        let is_refused = line::first_control(&subject).is_some() || text.is_none() && html.is_none();
        let Ok(bytes) = build(&from(), &message, now()) else {
            prop_assert!(is_refused);
            return Ok(());
        };
        prop_assert!(!is_refused && bytes.is_ascii() && check_lines(&bytes).is_ok());
        let is_odd = |byte: &u8| byte.is_ascii_control() && !b"\r\n\t".contains(byte);
        prop_assert!(!bytes.iter().any(is_odd));
        let read = MessageParser::default().parse(&bytes).unwrap();
        prop_assert_eq!(read.subject().unwrap_or(""), subject.as_str());
        prop_assert_eq!(list(read.to()), message.recipients);
        prop_assert_eq!(list(read.reply_to()), reply_to);
        let (read_text, read_html) = bodies(&bytes);
        // A body that is the whole message ends with a line end, which is the message's own.
        let same = |read: &str, written: &str| read == written || read == format!("{written}\r\n");
        if let Some(text) = text {
            let read = read_text.unwrap();
            prop_assert!(same(&read, &normalize(&text)), "{read:?}");
        }
        match html {
            Some(html) => {
                let read = read_html.unwrap();
                prop_assert!(same(&read, &normalize(&html)), "{read:?}");
            }
            None => prop_assert!(read_html.is_none()),
        }
    }
}
