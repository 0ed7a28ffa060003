//! Helpers for the tests of the providers.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hyper::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::{Message, MessageOutcome, Provider, Response};
use crate::attachment::Attachment;
use crate::transport::credentials::Credentials;

/// Credentials of these lines, `key = value`.
pub fn credentials(content: &str) -> Credentials {
    const KEYS: [&str; 9] = [
        "access_key_id",
        "api_key",
        "configuration_set",
        "domain",
        "message_stream",
        "region",
        "secret",
        "secret_access_key",
        "session_token",
    ];
    let mut credentials = Credentials::default();
    for line in content.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(" = ").unwrap();
        let key = KEYS.into_iter().find(|key| *key == name).unwrap();
        credentials.put(key, Zeroizing::new(value.to_owned()));
    }
    credentials
}

/// Known responses.
pub fn vectors(kind: &str) -> Vec<Value> {
    let all: Value =
        serde_json::from_str(include_str!("../../../../../tests/vectors/http.json")).unwrap();
    let rows = all[kind].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "the known responses are incomplete");
    rows
}

/// A mail with all fields.
pub fn message() -> Message {
    Message {
        id: 7,
        message_id: "0f8fad5b-d9cb-469f-a165-70867728950e".to_owned(),
        kind: "reminder".to_owned(),
        recipients: vec!["ada@example.com".to_owned()],
        cc: vec!["grace@example.com".to_owned()],
        bcc: vec!["alan@example.com".to_owned()],
        reply_to: vec!["help@example.net".to_owned(), "desk@example.net".to_owned()],
        original_recipients: Vec::new(),
        attachments: Vec::new(),
        from_address: None,
        headers: None,
        unsubscribe_url: None,
        subject: "Grüße \"an\" {{ alle }}".to_owned(),
        body_text: Some("Dear Ada,\nsee {{you}} & <us>".to_owned()),
        body_html: Some("<p>Dear Ada, see {{you}} &amp; us</p>".to_owned()),
        data: RawValue::from_string("{\"name\": \"Ada\"}".to_owned()).unwrap(),
        attempts: 1,
        is_last_attempt: false,
        created_at: 1_767_323_045,
        created_at_text: "1767323045.678901".to_owned(),
        expires_at: Some(1_767_323_945),
        account_id: Some(3),
    }
}

/// The contents of [`files`] in base64: `printf '%%PDF-1.7\r\n\0\377' | base64`.
pub const PDF: &str = "JVBERi0xLjcNCgD/";
/// `printf '\211PNG\r\n' | base64`.
pub const PNG: &str = "iVBORw0K";

/// A file, and an image that HTML shows. Names and contents are beyond ASCII, and the first name has a quote.
pub fn files() -> Vec<Attachment> {
    vec![
        Attachment {
            filename: "Rechnung \"für\" Zoë 📎.pdf".to_owned(),
            content_type: "application/pdf".to_owned(),
            content_id: None,
            content: Bytes::from_static(b"%PDF-1.7\r\n\0\xff"),
        },
        Attachment {
            filename: "logo.png".to_owned(),
            content_type: "image/png".to_owned(),
            content_id: Some("logo@example.com".to_owned()),
            content: Bytes::from_static(b"\x89PNG\r\n"),
        },
    ]
}

/// A mail with all fields, and with [`files`].
pub fn with_files() -> Message {
    Message {
        attachments: files(),
        ..message()
    }
}

/// A mail with one recipient, identified by its number.
pub fn plain(number: u8) -> Message {
    Message {
        id: i64::from(number),
        message_id: format!("0f8fad5b-d9cb-469f-a165-7086772895{number:02x}"),
        cc: Vec::new(),
        bcc: Vec::new(),
        reply_to: Vec::new(),
        ..message()
    }
}

/// The outcomes of a response to a request with several messages.
pub fn outcomes(
    provider: &dyn Provider,
    messages: usize,
    status: u16,
    body: &str,
) -> Vec<MessageOutcome> {
    outcomes_of(provider, messages, status, body, false)
}

/// The outcomes of a response with this status to a request with several messages, whose body breaks off here.
pub fn broken_off(
    provider: &dyn Provider,
    messages: usize,
    status: u16,
    body: &str,
) -> Vec<MessageOutcome> {
    outcomes_of(provider, messages, status, body, true)
}

fn outcomes_of(
    provider: &dyn Provider,
    messages: usize,
    status: u16,
    body: &str,
    is_broken_off: bool,
) -> Vec<MessageOutcome> {
    let headers = HeaderMap::new();
    let response = Response {
        status,
        headers: &headers,
        body: body.as_bytes(),
        is_broken_off,
        now: UNIX_EPOCH + Duration::from_secs(1_767_323_045),
    };
    let outcomes = provider.outcomes(messages, &response);
    assert_eq!(outcomes.len(), messages, "an outcome for each message");
    outcomes
}

/// The outcome of a response to a request with one message.
pub fn outcome(provider: &dyn Provider, status: u16, body: &str) -> MessageOutcome {
    outcomes(provider, 1, status, body).remove(0)
}
