//! Headers that an application may add to a message: names, values, and the URL of `unsubscribe_url`. Pure.
//!
//! A name is on the list or begins with `X-`; those by which a provider is told what to do, and those that mailroom
//! writes, are refused. Values are text; what reaches a header is ASCII.

use crate::line::{self, Named};
use crate::transport::encode;

/// Maximum number of headers: SES takes 15, and up to five are ours.
const COUNT_MAX: usize = 10;
/// Maximum octets of names and values together: Mailgun takes 16 kB with its own fields.
const ALL_MAX: usize = 8192;
/// Maximum octets of a value, encoded: that of SES.
const VALUE_MAX: usize = 870;
/// Maximum octets of a name.
const NAME_MAX: usize = 76;
/// Maximum octets of the URL of `unsubscribe_url`: it is a value between angle brackets.
const URL_MAX: usize = 800;

/// The names that do not begin with `X-` and are ASCII.
const STRUCTURED: [&str; 9] = [
    "In-Reply-To",
    "References",
    "List-Id",
    "List-Help",
    "List-Archive",
    "Feedback-ID",
    "Importance",
    "Precedence",
    "Auto-Submitted",
];
/// Those of which the value is text of any kind, as it is of those with `X-`.
const TEXTS: [&str; 3] = ["Organization", "Keywords", "Comments"];
/// How those begin that providers obey or that mailroom writes.
const RESERVED: [&str; 10] = [
    "X-SES-",
    "X-SMTPAPI",
    "X-SG-",
    "X-PM-",
    "X-Mailgun-",
    "X-MC-",
    "X-Mailroom-",
    "X-Original-To",
    "X-Tag",
    "X-Metadata",
];

/// Reads `headers`, a JSON object of strings. Returns names and values, the values in ASCII.
///
/// # Errors
/// What is wrong; it names a header, and quotes no value.
pub fn read(json: &str) -> Result<Vec<(String, String)>, String> {
    let json: serde_json::Value =
        serde_json::from_str(json).map_err(|_| "headers is no JSON".to_owned())?;
    let serde_json::Value::Object(all) = &json else {
        return Err(format!("headers is a JSON {}, not an object", kind(&json)));
    };
    if all.len() > COUNT_MAX {
        let count = all.len();
        return Err(format!(
            "headers has {count} names, at most {COUNT_MAX} are allowed"
        ));
    }
    let mut headers: Vec<(String, String)> = Vec::with_capacity(all.len());
    let mut octets = 0;
    for (name, value) in all {
        let quoted = line::quoted(name, NAME_MAX);
        let problem = |what: &str| format!("headers {quoted} {what}");
        let serde_json::Value::String(value) = value else {
            return Err(problem(&format!("is a JSON {}, not a string", kind(value))));
        };
        let is_text = check_name(name).map_err(problem)?;
        if headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            return Err(problem("is there twice"));
        }
        let value = check_value(value, is_text).map_err(|what| problem(&what))?;
        octets += name.len() + value.len();
        headers.push((name.clone(), value));
    }
    if octets > ALL_MAX {
        return Err(format!(
            "headers has {octets} octets, at most {ALL_MAX} are allowed"
        ));
    }
    Ok(headers)
}

fn kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "boolean",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    }
}

/// Whether the value of a header of this name is text of any kind.
fn check_name(name: &str) -> Result<bool, &'static str> {
    let is = |other: &&str| other.eq_ignore_ascii_case(name);
    if STRUCTURED.iter().any(is) {
        return Ok(false);
    }
    if TEXTS.iter().any(is) {
        return Ok(true);
    }
    let starts = |start: &str| {
        name.get(..start.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(start))
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !starts("X-") || name.len() < 3 || name.len() > NAME_MAX || !name.bytes().all(fits) {
        return Err("is not a name that a message may set");
    }
    if RESERVED.iter().any(|start| starts(start)) {
        return Err("is a name that providers or mailroom use");
    }
    Ok(true)
}

/// The value in ASCII.
fn check_value(value: &str, is_text: bool) -> Result<String, String> {
    if value.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if let Some(found) = line::first_control(value) {
        return Err(format!("contains the control character {}", Named(found)));
    }
    if !is_text && !value.is_ascii() {
        return Err("has letters beyond ASCII".to_owned());
    }
    let written = if is_text {
        encode::text(value).into_owned()
    } else {
        value.to_owned()
    };
    if written.len() > VALUE_MAX {
        return Err(format!(
            "has {} octets as a header, at most {VALUE_MAX} are allowed",
            written.len()
        ));
    }
    Ok(written)
}

/// Checks `unsubscribe_url`, which stands between angle brackets in a header.
///
/// # Errors
/// What is wrong; it does not quote the URL, which may hold a token.
pub fn check_unsubscribe_url(url: &str) -> Result<(), String> {
    let problem = if !url.starts_with("https://") || url.len() <= "https://".len() {
        "does not begin with https://"
    } else if url.len() > URL_MAX {
        return Err(format!(
            "unsubscribe_url has {} octets, at most {URL_MAX} are allowed",
            url.len()
        ));
    } else if !url
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte))
    {
        "has a space, a quote, an angle bracket, a control character or a letter beyond ASCII"
    } else {
        return Ok(());
    };
    Err(format!("unsubscribe_url {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(json: &str) -> String {
        read(json).unwrap_err()
    }

    #[test]
    fn what_a_message_may_set() {
        let read = read(
            r#"{"X-Order": "Bestellung für Zoë", "list-id": "<news.example.com>", "Auto-Submitted": "no", "Comments": "a  b"}"#,
        )
        .unwrap();
        let find = |name: &str| {
            let found = read.iter().find(|(found, _)| found == name);
            found.map(|(_, value)| value.as_str())
        };
        assert!(find("X-Order").unwrap().starts_with("=?UTF-8?B?"));
        assert_eq!(find("list-id"), Some("<news.example.com>"));
        assert_eq!(find("Auto-Submitted"), Some("no"));
        assert!(find("Comments").unwrap().starts_with("=?UTF-8?B?"));
        assert!(read.iter().all(|(_, value)| value.is_ascii()));
        assert_eq!(super::read("{}").unwrap(), []);
    }

    #[test]
    fn what_it_may_not() {
        for name in [
            "From",
            "To",
            "Bcc",
            "Subject",
            "Sender",
            "Return-Path",
            "Received",
            "Date",
            "Message-ID",
            "Content-Type",
            "List-Unsubscribe",
            "DKIM-Signature",
            "X-",
            "X",
            "",
            "X-A:",
            "X-A b",
            "X-Ä",
            "X-A\\r\\nBcc",
        ] {
            assert!(
                refused(&format!("{{\"{name}\": \"v\"}}"))
                    .ends_with("is not a name that a message may set"),
                "{name}"
            );
        }
        for name in [
            "X-SES-CONFIGURATION-SET",
            "x-smtpapi",
            "X-SMTPAPI-More",
            "X-SG-EID",
            "X-PM-Tag",
            "X-Mailgun-Variables",
            "X-MC-Tags",
            "X-Mailroom-Message-ID",
            "X-Original-To",
            "X-Tag",
            "X-Metadata-a",
        ] {
            assert!(
                refused(&format!("{{\"{name}\": \"v\"}}"))
                    .ends_with("is a name that providers or mailroom use"),
                "{name}"
            );
        }
        for (json, problem) in [
            ("[]", "headers is a JSON array, not an object"),
            ("null", "headers is a JSON null, not an object"),
            (
                r#"{"X-A": 1}"#,
                "headers \"X-A\" is a JSON number, not a string",
            ),
            (r#"{"X-A": " "}"#, "headers \"X-A\" is empty"),
            (
                r#"{"X-A": "a", "x-a": "b"}"#,
                "headers \"x-a\" is there twice",
            ),
            (
                r#"{"X-A": "a\r\nBcc: b"}"#,
                "headers \"X-A\" contains the control character U+000D",
            ),
            (
                r#"{"X-A": "a\u0000"}"#,
                "headers \"X-A\" contains the control character U+0000",
            ),
            (
                r#"{"X-A": "a\u2028"}"#,
                "headers \"X-A\" contains the control character U+2028",
            ),
            (
                r#"{"List-Id": "für"}"#,
                "headers \"List-Id\" has letters beyond ASCII",
            ),
        ] {
            assert_eq!(refused(json), problem, "{json}");
        }
        let value = |count| format!("{{\"X-A\": \"{}\"}}", "v".repeat(count));
        assert!(read(&value(870)).is_ok());
        assert_eq!(
            refused(&value(871)),
            "headers \"X-A\" has 871 octets as a header, at most 870 are allowed"
        );
        let many = |count: usize| {
            let each = (0..count).map(|number| format!("\"X-{number}\": \"{}\"", "v".repeat(820)));
            format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
        };
        assert!(read(&many(9)).is_ok());
        assert!(refused(&many(10)).ends_with("octets, at most 8192 are allowed"));
        assert_eq!(
            refused(&many(11)),
            "headers has 11 names, at most 10 are allowed"
        );
    }

    #[test]
    fn an_unsubscribe_url_is_one_token_of_https() {
        let long = |count: usize| format!("https://{}", "a".repeat(count - 8));
        for good in ["https://example.com/u?t=1&l=a", &long(800)] {
            assert_eq!(check_unsubscribe_url(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "https://",
            "http://example.com",
            "mailto:u@example.com",
            "HTTPS://example.com",
            "https://example.com/a b",
            "https://example.com/>,<mailto:x@y>",
            "https://example.com/\"",
            "https://example.com/\r\nBcc: a@b",
            "https://bücher.example/",
            &long(801),
        ] {
            assert!(check_unsubscribe_url(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_passes_is_one_line_of_ascii(name in "X-[A-Za-z0-9-]{1,10}|.{0,8}", value in ".{0,60}") {
            let json = serde_json::json!({name: value}).to_string();
            for (name, value) in read(&json).unwrap_or_default() {
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
                prop_assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            }
        }
    }
}
