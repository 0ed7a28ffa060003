use super::*;
use crate::transport::providers::fixture;
use mail_parser::{Address as Read, MessageParser, MimeHeaders, PartType};
use proptest::prelude::*;
use std::time::{Duration, UNIX_EPOCH};

fn from() -> Mailbox {
    mailbox::sender("\"Bücher, Ltd.\" <noreply@bücher.example>").unwrap()
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

/// What is built of a message.
fn made(from: &Mailbox, message: &Message) -> Result<Vec<u8>, String> {
    build(from, &Ready::new(message, usize::MAX)?, now())
}

fn bytes(message: &Message) -> Vec<u8> {
    made(&from(), message).unwrap()
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
        made(&from(), &message).unwrap_err()
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
    let long = [&[b'x'; 999][..], b"\r\n"].concat();
    assert_eq!(
        check_lines(&long).unwrap_err(),
        "the message has a line of over 998 bytes"
    );
}

#[test]
fn addresses_beyond_ascii_stay_and_want_a_server_for_it() {
    let mut message = fixture::plain(1);
    assert!(!needs_utf8(&from(), &Ready::new(&message, 9).unwrap()));
    message.recipients = vec!["jörg@example.com".to_owned()];
    assert!(needs_utf8(&from(), &Ready::new(&message, 9).unwrap()));
    let bytes = bytes(&message);
    let read = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(list(read.to()), message.recipients);
    let mut answered = fixture::plain(2);
    answered.reply_to = message.recipients;
    assert!(needs_utf8(&from(), &Ready::new(&answered, 9).unwrap()));
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

/// Fails unless each encoded word, and each line of a header that has one, is as short as RFC 2047 wants it (section 2).
fn check_encoded_words(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap();
    let (headers, _) = text.split_once("\r\n\r\n").unwrap();
    let unfolded = headers.replace("\r\n ", "\u{0} ");
    for header in unfolded
        .split("\r\n")
        .filter(|header| header.contains("=?"))
    {
        for line in header.split('\u{0}') {
            let is_address = line.starts_with(" <") && !line.contains("=?");
            assert!(line.len() <= 76 || is_address, "{}: {line}", line.len());
            for word in line.split(' ').filter(|word| word.starts_with("=?")) {
                assert!(word.len() <= 75 && word.ends_with("?="), "{line}");
            }
        }
    }
}

#[test]
fn encoded_words_stay_within_their_lines() {
    let mut message = fixture::plain(1);
    let address = "noreply@a-rather-long-label-of-a-domain.example.com";
    for text in ["😀", "ü", "é ", "日本", "a😀"] {
        for count in [1, 9, 10, 11, 18, 60, 249] {
            message.subject = text.repeat(count).trim().to_owned();
            let name: String = message.subject.chars().take(128).collect();
            let setting = format!("{} <{address}>", name.trim());
            let local: String = text.trim().repeat(15).chars().take(15).collect();
            message.recipients = vec![format!("\"{}\" <{local}@example.com>", text.repeat(20))];
            message.original_recipients = vec![];
            message.redirect("dev@example.com".to_owned());
            let from = Mailbox::parse(&setting).unwrap();
            let bytes = made(&from, &message).unwrap();
            check_encoded_words(&bytes);
            let read = MessageParser::default().parse(&bytes).unwrap();
            assert_eq!(read.subject(), Some(message.subject.as_str()));
            let sender = read.from().unwrap().first().unwrap();
            assert_eq!(sender.name(), Some(name.trim()));
            assert_eq!(sender.address(), Some(address));
        }
    }
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

/// Names of all kinds, without those that a reader must not keep: spaces at an end.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Z][a-z]{0,12} [A-Z]\\. [A-Z][a-z]{0,12}",
        "([!-~]|é|日|😀)([ -~]|é|日|😀){0,60}([!-~]|é)",
        "[a-z]{1,60}",
        "[ü😀]{1,120}",
        "=\\?utf-8\\?q\\?x\\?=",
        "Lee, Ann|\"Ann\"|Ann \\\\ Lee|a@b|<a@b>|\\(a\\)",
    ]
}

/// A mailbox with each of these names.
fn named(names: &[String]) -> Vec<String> {
    let quoted = |name: &String| name.replace('\\', "\\\\").replace('"', "\\\"");
    let one = |(index, name)| format!("\"{}\" <a{index}@example.com>", quoted(name));
    names.iter().enumerate().map(one).collect()
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(
        subject in prop_oneof![any_text(), "[ -~]{0,300}", "(=\\?| |é|_|\\?=|a){0,90}", "(a | b|=\\?utf-8\\?q\\?x\\?=){1,4}"],
        text in proptest::option::of(any_text()),
        html in proptest::option::of(any_text()),
        reply_to in proptest::collection::vec("[a-z+']{1,40}(\\.[a-z+']{1,8}){0,2}@[a-z]{1,60}\\.example", 0..11),
        names in proptest::collection::vec(any_name(), 1..6),
    ) {
        let mut message = fixture::plain(1);
        message.subject = subject.clone();
        message.body_text = text.clone();
        message.body_html = html.clone();
        message.reply_to = reply_to.clone();
        message.recipients = named(&names);
        let text = text.filter(|text| !text.is_empty());
        let html = html.filter(|html| !html.is_empty());
        let is_refused = line::first_control(&subject).is_some() || text.is_none() && html.is_none();
        let Ok(bytes) = made(&from(), &message) else {
            prop_assert!(is_refused);
            return Ok(());
        };
        prop_assert!(!is_refused && bytes.is_ascii() && check_lines(&bytes).is_ok());
        let is_odd = |byte: &u8| byte.is_ascii_control() && !b"\r\n\t".contains(byte);
        prop_assert!(!bytes.iter().any(is_odd));
        check_encoded_words(&bytes);
        let read = MessageParser::default().parse(&bytes).unwrap();
        prop_assert_eq!(read.subject().unwrap_or(""), subject.as_str());
        let to = read.to().unwrap().iter().map(|one| one.name().unwrap_or("").to_owned());
        prop_assert_eq!(to.collect::<Vec<_>>(), names);
        prop_assert_eq!(list(read.to()).len(), message.recipients.len());
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

mod files;
