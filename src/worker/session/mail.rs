//! A claimed row as the deliverer has it.

use std::time::{Duration, UNIX_EPOCH};

use pgrx::prelude::*;
use pgrx::spi::SpiHeapTupleData;
use serde_json::value::RawValue;

use super::Failure;
use super::statement::needed;
use crate::pg::encoding::{Text, Texts};
use mailroom_core::deliver::mail::Mail;
use mailroom_core::deliver::settlements::FailedAttempt;
use mailroom_core::message::Message;

/// Such a mail ends: what it says cannot be put into a request, now or ever.
pub fn not_in_encoding(column: &str) -> FailedAttempt {
    FailedAttempt {
        permanent: true,
        ..FailedAttempt::new(format!(
            "{column} holds bytes that are no characters in the database's encoding"
        ))
    }
}

/// The mail, or the column that holds what is no text.
pub fn read(
    row: &SpiHeapTupleData<'_>,
    size: usize,
) -> Result<Result<Mail, &'static str>, Failure> {
    let contents = match Contents::read(row)? {
        Ok(contents) => contents,
        Err(column) => return Ok(Err(column)),
    };
    let expires_at: Option<f64> = row.get(14)?;
    let mut message = Message {
        id: needed(row, 1)?,
        attempts: needed(row, 2)?,
        message_id: needed(row, 4)?,
        kind: contents.kind,
        recipients: contents.recipients,
        cc: contents.cc,
        bcc: contents.bcc,
        original_recipients: Vec::new(),
        subject: contents.subject,
        body_text: contents.body_text,
        body_html: contents.body_html,
        data: variables(contents.data)?,
        created_at: needed(row, 13)?,
    };
    if let Some(address) = contents.redirect_to {
        message.redirect(address);
    }
    Ok(Ok(Mail {
        message,
        expires_at: expires_at
            .map(|end| UNIX_EPOCH + Duration::try_from_secs_f64(end).unwrap_or_default()),
        size,
        ambiguous_alone: needed(row, 15)?,
        ambiguous_attempts: needed(row, 16)?,
        priority: needed(row, 17)?,
        send_at: needed(row, 18)?,
        group_key: contents.group_key,
        batch: row.get(20)?,
        alone: false,
    }))
}

/// The columns that hold text, converted from the encoding of the database.
struct Contents {
    kind: String,
    recipients: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    subject: String,
    body_text: Option<String>,
    body_html: Option<String>,
    data: String,
    group_key: Option<String>,
    redirect_to: Option<String>,
}

impl Contents {
    pub fn read(row: &SpiHeapTupleData<'_>) -> Result<Result<Self, &'static str>, Failure> {
        let kind: Text = needed(row, 5)?;
        let recipients: Texts = needed(row, 6)?;
        let cc: Texts = needed(row, 7)?;
        let bcc: Texts = needed(row, 8)?;
        let subject: Text = needed(row, 9)?;
        let body_text: Option<Text> = row.get(10)?;
        let body_html: Option<Text> = row.get(11)?;
        let data: Text = needed(row, 12)?;
        let group_key: Option<Text> = row.get(19)?;
        let redirect_to: Option<Text> = row.get(21)?;
        let body = |body: Option<Text>, name| body.map(|text| text.0.ok_or(name)).transpose();
        let read = || {
            Ok(Self {
                kind: kind.0.ok_or("kind")?,
                recipients: recipients.0.ok_or("recipients")?,
                cc: cc.0.ok_or("cc")?,
                bcc: bcc.0.ok_or("bcc")?,
                subject: subject.0.ok_or("subject")?,
                body_text: body(body_text, "body_text")?,
                body_html: body(body_html, "body_html")?,
                data: data.0.ok_or("data")?,
                group_key: body(group_key, "group_key")?,
                redirect_to: body(redirect_to, "mailroom.redirect_to")?,
            })
        };
        Ok(read())
    }
}

/// Text of jsonb, as it goes on to the provider.
fn variables(text: String) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(text).map_err(|_| {
        Failure::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            "the data of a claimed mail is no JSON",
            None,
        )
    })
}
