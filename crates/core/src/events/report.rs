//! Events as a program reports them that verified them itself, and as SQL takes them: JSON. Pure.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::reported::{Identity, MailIds, Reported, address_key, provider_id, uuid};
use super::{Event, EventType, RejectReason, reply, timestamp};
use crate::mask;
use crate::transport::dates;

/// Maximum number of events of one report.
pub const REPORT_MAX: usize = 1000;
/// Maximum octets of an identifier of an event.
const EVENT_ID_MAX: usize = 1024;

/// Why a report is not taken. It quotes nothing of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// An event, and whether its reporter proved that the provider made it. Else it counts for a mail that it names, and a
/// recipient of that mail, only.
pub struct Reporting {
    /// The event.
    pub event: Event,
    /// Whether it has an identifier by the provider.
    pub is_proven: bool,
}

impl Event {
    /// The event as `mailroom_report` takes it, with all members, and as a row of `delivery_events` is made of it. In its
    /// detail links, tokens and codes are masked.
    pub fn to_json(&self) -> Value {
        let detail = self.detail.as_deref().map(mask::mask);
        json!({
            "event_key": self.key.to_string(),
            "type": self.event_type.name(),
            "is_permanent": self.is_permanent,
            "reason": self.reason.map(RejectReason::name),
            "recipient": self.recipient,
            "outbox_id": self.outbox_id,
            "message_id": self.message_id.map(|id| id.to_string()),
            "provider_id": self.provider_id,
            "status": self.status,
            "detail": detail.as_deref().and_then(reply::detail),
            "occurred_at": rfc3339(self.occurred_at),
        })
    }
}

/// Reads a report: a JSON array of at most [`REPORT_MAX`] objects with the members `type`, `event_key` or `event_id`,
/// `message_id`, `outbox_id`, `provider_id`, `recipient`, `is_permanent`, `reason`, `status`, `detail` and `occurred_at`
/// (RFC 3339; by default `now`). Required are `type` and, without `event_key` and `event_id`, `message_id` and
/// `recipient`.
///
/// # Errors
/// The first event and member that cannot be read.
pub fn read(transport: &str, report: &str, now: SystemTime) -> Result<Vec<Reporting>, Refusal> {
    let refuse = |text: &str| Err(Refusal(text.to_owned()));
    let Ok(Value::Array(events)) = serde_json::from_str(report) else {
        return refuse("events cannot be read as a JSON array");
    };
    if events.len() > REPORT_MAX {
        return refuse("events has more than 1000 elements");
    }
    let read = |(index, event): (usize, &Value)| {
        one(transport, event, now).map_err(|fault| Refusal(format!("events[{}]{fault}", index + 1)))
    };
    events.iter().enumerate().map(read).collect()
}

const MEMBERS: [&str; 12] = [
    "type",
    "event_key",
    "event_id",
    "message_id",
    "outbox_id",
    "provider_id",
    "recipient",
    "is_permanent",
    "reason",
    "status",
    "detail",
    "occurred_at",
];

fn one(transport: &str, event: &Value, now: SystemTime) -> Result<Reporting, String> {
    let Value::Object(members) = event else {
        return Err(" is not an object".to_owned());
    };
    if members.keys().any(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!(
            " has a member that is none of {}",
            MEMBERS.join(", ")
        ));
    }
    let event_type = member(members, "type", "a type of event", event_type)?
        .ok_or_else(|| ".type is missing".to_owned())?;
    let key = member(members, "event_key", "a UUID", uuid)?;
    let id = member(members, "event_id", "1 to 1024 octets", event_id)?;
    let message_id = member(members, "message_id", "a UUID", uuid)?;
    let recipient = member(members, "recipient", "an address", address_key)?;
    let occurred_at = member(
        members,
        "occurred_at",
        "a time as 2026-01-31T12:00:00Z, from 1970 on",
        timestamp::rfc3339,
    )?;
    let is_proven = key.is_some() || id.is_some();
    let identity = match (id, message_id) {
        (Some(id), _) => id,
        // The same report again is the same event.
        (None, Some(message_id)) if is_proven || recipient.is_some() => {
            let at = rfc3339(occurred_at.unwrap_or(UNIX_EPOCH));
            format!("{message_id} {at}")
        }
        (None, None) if is_proven => String::new(),
        _ => return Err(" has neither event_id nor message_id and recipient".to_owned()),
    };
    let reported = Reported {
        identity: Identity::Event(identity),
        event_type,
        reason: member(members, "reason", "a reason", reason)?,
        is_permanent: boolean(members, "is_permanent")?,
        recipient,
        mail: MailIds {
            message_id,
            outbox_id: number(members, "outbox_id")?,
        },
        provider_id: member(members, "provider_id", "1 to 255 octets", provider_id)?,
        status: member(members, "status", "a status as 5.1.1", status)?,
        detail: member(members, "detail", "a string", |text| Some(text.to_owned()))?,
        occurred_at,
    };
    let mut event = reported.into_event(transport, now);
    event.key = key.unwrap_or(event.key);
    Ok(Reporting { event, is_proven })
}

/// A member that is a string; one that is null is missing.
fn member<T>(
    members: &Map<String, Value>,
    name: &str,
    what: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => match read(text) {
            Some(value) => Ok(Some(value)),
            None => Err(format!(".{name} is not {what}")),
        },
        Some(_) => Err(format!(".{name} is not a string")),
    }
}

fn boolean(members: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| format!(".{name} is not a boolean")),
    }
}

fn number(members: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64().filter(|number| *number > 0) {
            Some(number) => Ok(Some(number)),
            None => Err(format!(".{name} is not a positive number")),
        },
    }
}

fn event_type(name: &str) -> Option<EventType> {
    EventType::ALL.into_iter().find(|one| one.name() == name)
}

fn reason(name: &str) -> Option<RejectReason> {
    RejectReason::ALL.into_iter().find(|one| one.name() == name)
}

fn event_id(text: &str) -> Option<String> {
    (1..=EVENT_ID_MAX)
        .contains(&text.len())
        .then(|| text.to_owned())
}

fn status(text: &str) -> Option<String> {
    reply::is_status(text).then(|| text.to_owned())
}

/// In UTC, to the microsecond.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let whole = dates::rfc3339(since.as_secs());
    format!(
        "{}.{:06}Z",
        whole.trim_end_matches('Z'),
        since.subsec_micros()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "01976b2e-8f00-7abc-8def-0123456789ab";

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_767_323_045)
    }

    fn read_one(event: Value) -> Result<Reporting, String> {
        let report = json!([event]).to_string();
        let read = read("shop", &report, now()).map_err(|refusal| refusal.to_string())?;
        Ok(read.into_iter().next().unwrap())
    }

    #[test]
    fn what_an_event_says_of_itself_reads_as_itself() {
        let event = json!({
            "type": "bounced", "event_id": "a", "message_id": MAIL, "outbox_id": 7, "provider_id": "p",
            "recipient": "Ann <Ann@Example.com>", "is_permanent": true, "reason": "invalid", "status": "5.1.1",
            "detail": "550 5.1.1\nno such user", "occurred_at": "2025-12-31T23:59:59.25+01:00",
        });
        let first = read_one(event).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(first.is_proven && first.event.is_permanent);
        assert_eq!(first.event.recipient.as_deref(), Some("ann@example.com"));
        let written = first.event.to_json();
        assert_eq!(written["occurred_at"], "2025-12-31T22:59:59.250000Z");
        let second = read_one(written).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(second.event == first.event && second.is_proven);
    }

    #[test]
    fn without_an_identifier_mail_recipient_type_and_time_tell_events_apart() {
        let event = |recipient: &str, at: &str| {
            let event = json!({"type": "bounced", "message_id": MAIL, "recipient": recipient, "occurred_at": at});
            let read = read_one(event).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(!read.is_proven);
            read.event.key
        };
        let (one, other) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        assert_eq!(event("a@b.example", one), event("A@b.example", one));
        assert_ne!(event("a@b.example", one), event("a@b.example", other));
        assert_ne!(event("a@b.example", one), event("c@b.example", one));
    }

    #[test]
    fn a_detail_shows_no_secret() {
        let detail = format!(
            "see https://example.com/x?token={} or 12345",
            "A".repeat(86)
        );
        let event = json!({"type": "bounced", "event_id": "a", "detail": detail});
        let read = read_one(event).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(read.event.to_json()["detail"], "see [link] or [code]");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let with = |name: &str, value: Value| {
            let mut event = json!({"type": "bounced", "event_id": "a"});
            event[name] = value;
            read_one(event).map(|_| ()).unwrap_err()
        };
        for (name, value, expected) in [
            ("type", json!("opened"), ".type is not a type of event"),
            ("type", json!(null), ".type is missing"),
            ("type", json!(1), ".type is not a string"),
            ("event_key", json!("1"), ".event_key is not a UUID"),
            ("event_id", json!(""), ".event_id is not 1 to 1024 octets"),
            ("recipient", json!("a"), ".recipient is not an address"),
            (
                "outbox_id",
                json!("7"),
                ".outbox_id is not a positive number",
            ),
            (
                "is_permanent",
                json!("yes"),
                ".is_permanent is not a boolean",
            ),
            ("reason", json!("x"), ".reason is not a reason"),
            ("status", json!("x"), ".status is not a status as 5.1.1"),
            (
                "occurred_at",
                json!("now"),
                ".occurred_at is not a time as 2026-01-31T12:00:00Z, from 1970 on",
            ),
        ] {
            assert_eq!(with(name, value), format!("events[1]{expected}"));
        }
        assert!(
            with("secret", json!(1)).starts_with("events[1] has a member that is none of type")
        );
        let unknown = json!({"type": "bounced", "message_id": MAIL});
        let fault = read_one(unknown).map(|_| ()).unwrap_err();
        assert_eq!(
            fault,
            "events[1] has neither event_id nor message_id and recipient"
        );
        for report in ["{}", "nonsense", ""] {
            assert!(read("shop", report, now()).is_err());
        }
        let many = Value::Array(vec![json!({}); 1001]).to_string();
        let fault = read("shop", &many, now()).map(|_| ()).unwrap_err();
        assert_eq!(fault.to_string(), "events has more than 1000 elements");
        assert!(read("shop", "[]", now()).is_ok_and(|events| events.is_empty()));
    }
}
