//! Mails for tests.

use std::time::Duration;

use serde_json::value::RawValue;

use super::mail::Mail;
use crate::message::Message;

pub(crate) fn mail(id: i64) -> Mail {
    Mail {
        message: Message {
            id,
            message_id: format!("00000000-0000-4000-8000-{id:012x}"),
            kind: "news".to_owned(),
            recipients: vec![format!("r{id}@example.com")],
            subject: format!("m{id}"),
            body_text: Some("text".to_owned()),
            data: RawValue::from_string("{}".to_owned()).unwrap(),
            ..Message::default()
        },
        claimed_at: Duration::ZERO,
        expires_in: None,
        age: Duration::ZERO,
        size: 1_000,
        attachment_bytes: None,
        priority: 0,
        send_at: 0,
        group_key: None,
        ambiguous_attempts: 0,
        ambiguous_alone: true,
        may_have_arrived: false,
        batch: None,
        ends_as_error: false,
        fell_back: false,
        alone: false,
    }
}
