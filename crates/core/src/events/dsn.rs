//! Reports of delivery that come by mail: delivery status notifications (RFC 3464) of relays. Pure.
//!
//! Nothing proves who sent a report, so its events count for a mail that it names by the `message_id`, which is hard to guess,
//! and a recipient of that mail. Prose is not read: what has no `message/delivery-status` is no report.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mail_parser::{DateTime, Message, MessageParser, MessagePart, MimeHeaders, PartType};
use serde_json::{Value, json};
use uuid::Uuid;

use super::report::{REPORT_MAX, rfc3339};
use super::reported::{address_key, uuid};
use super::{EventType, reply, timestamp};
use crate::transport::smtp;

/// How much of a report is read, in octets: what it says comes before the mail that it returns.
pub const READ_MAX: usize = 1024 * 1024;

/// Why a mail has no events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReport {
    /// It has no machine-readable status: a vacation reply, for example, or a report in prose.
    NoStatus,
    /// It does not name a mail of mailroom.
    NoMail,
}

impl fmt::Display for NoReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoStatus => "the mail is no report of delivery as in RFC 3464",
            Self::NoMail => "the report names no mail of mailroom",
        })
    }
}

/// The events of a report, as `mailroom_report` takes them. It may have none: a report that a mail was relayed.
///
/// # Errors
/// Why it has none.
pub fn read(report: &[u8]) -> Result<Vec<Value>, NoReport> {
    let report = Report::parse(report).ok_or(NoReport::NoStatus)?;
    let message_id = report.message_id.ok_or(NoReport::NoMail)?.to_string();
    let event = |one: &Recipient| {
        json!({
            "type": one.event_type.name(),
            "message_id": message_id,
            "recipient": one.address,
            "is_permanent": one.is_permanent,
            "reason": (one.event_type == EventType::Bounced).then_some("bounced"),
            "status": one.status,
            "detail": one.detail,
            "occurred_at": one.occurred_at.or(report.sent_at).map(rfc3339),
        })
    };
    Ok(report.recipients.iter().map(event).collect())
}

/// What a report says.
struct Report {
    message_id: Option<Uuid>,
    sent_at: Option<SystemTime>,
    recipients: Vec<Recipient>,
}

/// What a report says of a recipient.
struct Recipient {
    address: String,
    event_type: EventType,
    is_permanent: bool,
    status: Option<String>,
    detail: Option<String>,
    occurred_at: Option<SystemTime>,
}

impl Report {
    /// `None` if it has no status.
    fn parse(report: &[u8]) -> Option<Self> {
        let report = report.get(..READ_MAX).unwrap_or(report);
        let message = MessageParser::default().parse(report)?;
        let status = message
            .parts
            .iter()
            .find(|part| is_of_type(part, "message", "delivery-status"))?;
        let status = String::from_utf8_lossy(status.contents()).replace("\r\n", "\n");
        // The fields of the message first, then those of each recipient.
        let groups: Vec<Fields> = status.split("\n\n").map(Fields::parse).collect();
        let envelope_id = groups
            .iter()
            .find_map(|group| uuid(group.get("Original-Envelope-Id")?.as_str()));
        Some(Self {
            message_id: message.parts.iter().find_map(returned_id).or(envelope_id),
            sent_at: message.date().and_then(time),
            recipients: groups
                .iter()
                .filter_map(Recipient::read)
                .take(REPORT_MAX)
                .collect(),
        })
    }
}

impl Recipient {
    /// `None` for fields without a recipient or with an action that says nothing of the mailbox.
    fn read(fields: &Fields) -> Option<Self> {
        let action = fields.get("Action")?.to_ascii_lowercase();
        let event_type = match action.split(' ').next()? {
            // The last two are of servers that do not keep to the RFC.
            "failed" | "failure" | "error" => EventType::Bounced,
            "delayed" => EventType::Deferred,
            "delivered" => EventType::Delivered,
            _ => return None,
        };
        // The one that the mail was sent to comes first: a server in between may have changed it.
        let address = ["Original-Recipient", "Final-Recipient"]
            .into_iter()
            .find_map(|name| address(&fields.get(name)?))?;
        let detail = fields.get("Diagnostic-Code");
        let given = fields.get("Status");
        let given = given.as_deref().and_then(|status| status.split(' ').next());
        let given = given.filter(|status| reply::is_status(status));
        let replied = detail.as_deref().and_then(reply::status);
        // X.0.0 says nothing, and the reply may.
        let status = match given {
            Some(status) if !status.ends_with(".0.0") => Some(status),
            _ => replied.or(given),
        };
        let occurred_at = fields.get("Last-Attempt-Date");
        Some(Self {
            address,
            event_type,
            is_permanent: event_type == EventType::Bounced
                && status.is_some_and(smtp::names_mailbox),
            status: status.map(str::to_owned),
            occurred_at: occurred_at
                .and_then(|date| DateTime::parse_rfc822(&date))
                .as_ref()
                .and_then(time),
            // jsonb takes no NUL.
            detail: detail.as_deref().and_then(reply::detail),
        })
    }
}

/// A group of fields.
struct Fields<'a>(Option<Message<'a>>);

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Self {
        let text = text.trim_start_matches('\n');
        Self(MessageParser::default().parse_headers(text.as_bytes()))
    }

    /// The value of a field in one line; `None` for none or an empty one.
    fn get(&self, name: &str) -> Option<String> {
        let value = self.0.as_ref()?.header_raw(name)?;
        let words: Vec<&str> = value.split_whitespace().collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

fn is_of_type(part: &MessagePart<'_>, kind: &str, subtype: &str) -> bool {
    part.content_type().is_some_and(|content| {
        content.ctype().eq_ignore_ascii_case(kind)
            && content
                .subtype()
                .is_some_and(|one| one.eq_ignore_ascii_case(subtype))
    })
}

/// The `message_id` of the mail that this part returns, or the headers of which it does.
fn returned_id(part: &MessagePart<'_>) -> Option<Uuid> {
    let of = |message: &Message<'_>| {
        let own = message.header_raw("X-Mailroom-Message-ID").map(str::trim);
        let id = message.message_id().and_then(|id| id.split('@').next());
        id.and_then(uuid).or_else(|| own.and_then(uuid))
    };
    match &part.body {
        PartType::Message(message) => of(message),
        _ if is_of_type(part, "text", "rfc822-headers") => {
            of(&MessageParser::default().parse_headers(part.contents())?)
        }
        _ => None,
    }
}

/// The address of `rfc822; ann@example.com`, of which some servers leave out the type. What is none is left out: `mailroom_report` would refuse the others with it.
fn address(value: &str) -> Option<String> {
    let (kind, address) = value.split_once(';').unwrap_or(("rfc822", value));
    let is_known = ["rfc822", "utf-8"]
        .iter()
        .any(|one| kind.trim().eq_ignore_ascii_case(one));
    let address = address.trim().trim_matches(['<', '>']);
    (is_known && address_key(address).is_some()).then(|| address.to_owned())
}

/// A time that RFC 3339 can write: the years 1970 to 9999.
fn time(date: &DateTime) -> Option<SystemTime> {
    let seconds = u64::try_from(date.to_timestamp()).ok()?;
    (date.is_valid() && seconds < timestamp::END)
        .then(|| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))?
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::PathBuf;

    use serde::Deserialize;

    use super::*;
    use crate::events::report;

    /// What flufl.bounce 6.0.0 reads from a report.
    #[derive(Deserialize)]
    struct Read {
        permanent: BTreeSet<String>,
        temporary: BTreeSet<String>,
    }

    /// Reports of which flufl.bounce reads something else, and why.
    const DIFFERENCES: [(&str, &str); 4] = [
        (
            "flufl-dsn-15.eml",
            "the report is within a mail that another one forwards",
        ),
        (
            "flufl-simple-42.eml",
            "the recipient has been made unreadable, and is no address",
        ),
        (
            "lhost-sendmail-13.eml",
            "it has no status; flufl.bounce reads the prose",
        ),
        (
            "lhost-x5-01.eml",
            "the report is within a mail that another one forwards",
        ),
    ];

    fn folder() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/dsn")
    }

    #[test]
    fn real_reports_are_read_as_another_program_reads_them() {
        let expected = fs::read_to_string(folder().join("flufl.json")).unwrap();
        let expected: BTreeMap<String, Read> = serde_json::from_str(&expected).unwrap();
        assert_eq!(expected.len(), 128);
        let mut different = Vec::new();
        for (name, read) in &expected {
            let report = Report::parse(&fs::read(folder().join(name)).unwrap());
            let of_type = |event_type| -> BTreeSet<String> {
                let all = report.iter().flat_map(|report| &report.recipients);
                all.filter(|one| one.event_type == event_type)
                    .map(|one| one.address.clone())
                    .collect()
            };
            let ours = (of_type(EventType::Bounced), of_type(EventType::Deferred));
            if ours != (read.permanent.clone(), read.temporary.clone()) {
                different.push(name.as_str());
            }
        }
        let known: Vec<&str> = DIFFERENCES.iter().map(|(name, _)| *name).collect();
        assert_eq!(different, known);
    }

    #[test]
    fn only_codes_that_name_the_mailbox_are_permanent() {
        let mut permanent = 0;
        for name in fs::read_dir(folder()).unwrap() {
            let Some(report) = Report::parse(&fs::read(name.unwrap().path()).unwrap()) else {
                continue;
            };
            for one in &report.recipients {
                let status = one.status.as_deref().unwrap_or_default();
                permanent += usize::from(one.is_permanent);
                assert!(!one.is_permanent || status.starts_with("5."), "{status}");
                assert!(!one.is_permanent || !status.starts_with("5.7"), "{status}");
            }
        }
        assert!((20..90).contains(&permanent), "{permanent}");
    }

    const MAIL: &str = "01976b2e-8f00-7abc-8def-0123456789ab";

    fn report(returned: &str) -> String {
        format!(
            "Date: Thu, 01 Jan 2026 12:00:00 +0100\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n\
             --b\r\nContent-Type: text/plain\r\n\r\nIt failed.\r\n\
             --b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example\r\n\r\n\
             Original-Recipient: rfc822;Ann@Example.com\r\nFinal-Recipient: rfc822;x@inner.example\r\nAction: failed\r\n\
             Status: 5.0.0\r\nDiagnostic-Code: smtp; 550 5.1.1 no such\r\n user\r\n\r\n\
             Final-Recipient: rfc822; bob@example.com\r\nAction: relayed\r\nStatus: 2.0.0\r\n\r\n\
             --b\r\n{returned}\r\n--b--\r\n"
        )
    }

    #[test]
    fn a_report_has_the_events_of_the_mail_that_it_returns() {
        let headers = format!(
            "Content-Type: text/rfc822-headers\r\n\r\nSubject: x\r\nMessage-ID: <{MAIL}@example.com>\r\n"
        );
        let whole = format!(
            "Content-Type: message/rfc822\r\n\r\nMessage-ID: <{MAIL}@example.com>\r\n\r\nText\r\n"
        );
        for returned in [headers, whole] {
            let events = read(report(&returned).as_bytes()).unwrap();
            assert_eq!(
                events,
                [json!({
                    "type": "bounced", "message_id": MAIL, "recipient": "Ann@Example.com", "is_permanent": true,
                    "reason": "bounced", "status": "5.1.1", "detail": "smtp; 550 5.1.1 no such user",
                    "occurred_at": "2026-01-01T11:00:00.000000Z",
                })]
            );
            let taken = report::read("relay", &json!(events).to_string(), SystemTime::now());
            assert!(!taken.unwrap()[0].is_proven);
        }
        let other =
            "Content-Type: message/rfc822\r\n\r\nMessage-ID: <1@example.com>\r\n\r\nText\r\n";
        assert_eq!(read(report(other).as_bytes()), Err(NoReport::NoMail));
        assert_eq!(read(b"Subject: away\r\n\r\n5.1.1"), Err(NoReport::NoStatus));
        assert_eq!(read(b""), Err(NoReport::NoStatus));
    }

    /// The fuzz target `dsn` found these.
    #[test]
    fn what_mailroom_report_would_refuse_is_left_out() {
        let whole = format!(
            "Content-Type: message/rfc822\r\n\r\nMessage-ID: <{MAIL}@example.com>\r\n\r\nText\r\n"
        );
        let failed = |address: &str, reply: &str| {
            format!(
                "Final-Recipient: rfc822; {address}\r\nAction: failed\r\nDiagnostic-Code: smtp; {reply}\r\n\
                 Last-Attempt-Date: Thu, 01 Jan 20260 12:00:00 +0000\r\n\r\n"
            )
        };
        let with = |recipients: &str| {
            let place = "Original-Recipient: rfc822;Ann@Example.com\r\n";
            let report = report(&whole).replace(place, &format!("{recipients}{place}"));
            let events = json!(read(report.as_bytes()).unwrap()).to_string();
            assert!(!events.contains("\\u0000"), "{events}");
            let taken = report::read("relay", &events, SystemTime::now());
            let taken = taken.unwrap_or_else(|refusal| panic!("{refusal}: {events}"));
            taken.len()
        };
        for address in ["a b@c@example.com", "bob@example.co\u{9d}", "@", "<bob@>"] {
            assert_eq!(with(&failed(address, "550 5.1.1 x")), 1, "{address}");
        }
        assert_eq!(with(&failed("bob@example.com", "550 5.1.1 a\0b")), 2);
        let many: String = (0..REPORT_MAX)
            .map(|index| failed(&format!("{index}@example.com"), "550 5.1.1 x"))
            .collect();
        assert_eq!(with(&many), REPORT_MAX);
    }

    #[test]
    fn what_is_cut_off_or_broken_is_no_panic() {
        let whole = report(&format!(
            "Content-Type: message/rfc822\r\n\r\nMessage-ID: <{MAIL}@example.com>\r\n\r\nText\r\n"
        ));
        for end in 0..whole.len() {
            let _ = read(&whole.as_bytes()[..end]);
            let mut broken = whole.clone().into_bytes();
            broken[end] = 0xff;
            let _ = read(&broken);
        }
        let _ = read(&vec![b'-'; 2 * READ_MAX]);
    }
}
