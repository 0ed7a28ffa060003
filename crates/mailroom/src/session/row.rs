//! Reads a claimed mail from a row of `claim_mail.sql`.

use std::time::{Duration, UNIX_EPOCH};

use mailroom_core::deliver::mail::{Claim, Mail};
use mailroom_core::deliver::settlements::FailedAttempt;
use mailroom_core::message::Message;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::database_error::DatabaseError;

/// The claim.
pub fn claim(row: &Row) -> Result<Claim, DatabaseError> {
    Ok(Claim {
        id: row.try_get(0)?,
        attempts: row.try_get(1)?,
    })
}

/// The size of its contents in bytes.
pub fn size(row: &Row) -> Result<usize, DatabaseError> {
    let size: i64 = row.try_get(2)?;
    Ok(usize::try_from(size).unwrap_or(usize::MAX))
}

/// The mail, or the name of the column that is not valid text.
pub fn mail(row: &Row, size: usize) -> Result<Result<Mail, &'static str>, DatabaseError> {
    let contents = match Contents::read(row) {
        Ok(contents) => contents,
        Err(column) => return Ok(Err(column)),
    };
    let Claim { id, attempts } = claim(row)?;
    let expires_at: Option<f64> = row.try_get(13)?;
    let mut message = Message {
        id,
        attempts,
        message_id: row.try_get(3)?,
        kind: contents.kind,
        recipients: contents.recipients,
        cc: contents.cc,
        bcc: contents.bcc,
        original_recipients: Vec::new(),
        subject: contents.subject,
        body_text: contents.body_text,
        body_html: contents.body_html,
        data: contents.data,
        created_at: row.try_get(12)?,
    };
    if let Some(address) = contents.redirect_to {
        message.redirect(address);
    }
    let end = |end: f64| UNIX_EPOCH + Duration::try_from_secs_f64(end).unwrap_or_default();
    Ok(Ok(Mail {
        message,
        expires_at: expires_at.map(end),
        size,
        ambiguous_alone: row.try_get(14)?,
        ambiguous_attempts: row.try_get(15)?,
        priority: row.try_get(16)?,
        send_at: row.try_get(17)?,
        group_key: contents.group_key,
        batch: row.try_get(19)?,
        alone: false,
    }))
}

/// The columns that users wrote. In a SQL_ASCII database they may contain any bytes.
struct Contents {
    kind: String,
    recipients: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    subject: String,
    body_text: Option<String>,
    body_html: Option<String>,
    data: Box<RawValue>,
    group_key: Option<String>,
    redirect_to: Option<String>,
}

impl Contents {
    fn read(row: &Row) -> Result<Self, &'static str> {
        let data: String = text(row, 11, "data")?;
        Ok(Self {
            kind: text(row, 4, "kind")?,
            recipients: text(row, 5, "recipients")?,
            cc: text(row, 6, "cc")?,
            bcc: text(row, 7, "bcc")?,
            subject: text(row, 8, "subject")?,
            body_text: text(row, 9, "body_text")?,
            body_html: text(row, 10, "body_html")?,
            data: RawValue::from_string(data).map_err(|_| "data")?,
            group_key: text(row, 18, "group_key")?,
            redirect_to: text(row, 20, "mailroom.redirect_to")?,
        })
    }
}

fn text<'a, T: FromSql<'a>>(
    row: &'a Row,
    column: usize,
    name: &'static str,
) -> Result<T, &'static str> {
    row.try_get(column).map_err(|_| name)
}

/// The failed attempt of a mail whose contents cannot be put into a request, now or later. `column` names the contents.
pub fn unreadable(column: &str) -> FailedAttempt {
    FailedAttempt {
        permanent: true,
        ..FailedAttempt::new(format!(
            "{column} holds bytes that are no characters in the database's encoding"
        ))
    }
}
