//! The SQL functions that verify and read what providers report, by the rules of [`mailroom_core::events`].

#![forbid(unsafe_code)]

use std::time::SystemTime;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::{Value, json};

use crate::pg::encoding;
use crate::settings;
use crate::shared_memory::abuse_log;
use mailroom_core::events::{Event, Received, Receiver, Request, report};
use mailroom_core::transport::config;

/// What a request to the webhook of this transport is, as JSON: `outcome`, and `events` or `confirm_url`.
///
/// The file with the secrets is read each time: a session keeps no secret in memory, and a changed file is in force at once.
///
/// # Errors
/// 55000 if the file cannot be used or does not say how events are verified, 42704 if it has no such transport, 22023 if
/// `headers` are none.
#[pg_extern(sql = false)]
fn _receive(
    transport: &[u8],
    database: &[u8],
    headers: &[u8],
    body: &[u8],
) -> Result<Vec<u8>, ErrorReport> {
    let transport = encoding::to_utf8(transport).unwrap_or_default();
    let database = encoding::to_utf8(database).unwrap_or_default();
    let receiver = receiver(&transport, &database)?;
    let headers = pairs(headers)?;
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let request = Request {
        headers: &headers,
        body,
        now: SystemTime::now(),
        retention: settings::retention(),
    };
    let outcome = |outcome: &str| json!({ "outcome": outcome });
    let received = match receiver.receive(&request) {
        // Whether there is one that was not known, SQL decides.
        Received::Events(events) => {
            let events: Vec<Value> = events.into_iter().map(|event| row(event, true)).collect();
            json!({ "outcome": "recorded", "events": events })
        }
        Received::Ignored => outcome("ignored"),
        Received::Confirm { url } => json!({ "outcome": "confirm", "confirm_url": url }),
        Received::Forged(fault) => {
            abuse_log::forged(&transport, fault);
            outcome("forged")
        }
        Received::Stale => outcome("stale"),
        Received::Malformed(fault) => {
            abuse_log::forged(&transport, fault);
            outcome("malformed")
        }
    };
    Ok(encoded(&received))
}

/// The events of a report, as `_record_events` takes them.
///
/// # Errors
/// 22023 with the event and its member.
#[pg_extern(sql = false)]
fn _read_report(transport: &[u8], events: &[u8]) -> Result<Vec<u8>, ErrorReport> {
    let transport = encoding::to_utf8(transport).unwrap_or_default();
    let events = encoding::to_utf8(events).unwrap_or_default();
    let events = report::read(&transport, &events, SystemTime::now()).map_err(|refusal| {
        invalid("events cannot be recorded", format!("{refusal}."))
            .set_hint("Pass an array of at most 1000 objects with type, event_id, message_id, recipient and what else is known.")
    })?;
    let events: Vec<Value> = events
        .into_iter()
        .map(|reporting| row(reporting.event, reporting.is_proven))
        .collect();
    Ok(encoded(&Value::Array(events)))
}

fn receiver(transport: &str, database: &str) -> Result<Receiver, ErrorReport> {
    let unusable = |detail: String, hint: String| {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "events of the transport cannot be verified",
            function_name!(),
        )
        .set_detail(detail)
        .set_hint(hint)
    };
    let path = settings::transports_file().ok_or_else(|| {
        unusable(
            "mailroom.transports_file is not set.".to_owned(),
            "Set it to a file with the transport and its event_secret.".to_owned(),
        )
    })?;
    let transports =
        config::load_events(&path).map_err(|error| unusable(format!("{error}."), error.hint()))?;
    let found = transports
        .into_iter()
        .find(|one| one.name == transport && one.serves(database))
        .ok_or_else(|| {
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                "the transport does not exist",
                function_name!(),
            )
            .set_detail("The transports file has none of this name for this database.")
            .set_hint("Pass the name of a table [transports.NAME].")
        })?;
    found
        .receiver
        .filter(Receiver::has_secret)
        .ok_or_else(|| {
            unusable(
                "The transports file has no event_secret for it.".to_owned(),
                "Add event_secret, the key that the provider shows beside the webhook; for ses, user and password of the subscription's URL.".to_owned(),
            )
        })
}

/// Names and values of headers: of an object of strings, or of arrays of strings.
fn pairs(headers: &[u8]) -> Result<Vec<(String, String)>, ErrorReport> {
    let unreadable = |detail: &str| {
        invalid("headers cannot be read", detail.to_owned()).set_hint(
            "Pass a JSON object of the request's headers, each a string or an array of strings.",
        )
    };
    let read: Option<Value> =
        encoding::to_utf8(headers).and_then(|text| serde_json::from_str(&text).ok());
    let Some(Value::Object(members)) = read else {
        return Err(unreadable("They are not a JSON object."));
    };
    let mut pairs = Vec::with_capacity(members.len());
    for (name, value) in members {
        let values = match value {
            Value::Array(values) => values,
            Value::Null => continue,
            value => vec![value],
        };
        for value in values {
            let Value::String(value) = value else {
                return Err(unreadable(
                    "One of them is neither a string nor an array of strings.",
                ));
            };
            pairs.push((name.clone(), value));
        }
    }
    Ok(pairs)
}

/// An event for `_record_events`. A recipient that the encoding of the database cannot represent has no mail in it.
fn row(mut event: Event, is_proven: bool) -> Value {
    event
        .recipient
        .take_if(|recipient| encoding::from_utf8(recipient).is_none());
    let mut row = event.to_json();
    row["is_proven"] = Value::Bool(is_proven);
    row
}

fn encoded(value: &Value) -> Vec<u8> {
    encoding::from_utf8_lossy(&value.to_string()).into_owned()
}

fn invalid(message: &'static str, detail: String) -> ErrorReport {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        message,
        function_name!(),
    )
    .set_detail(detail)
}
