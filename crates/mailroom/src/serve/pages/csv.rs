//! A list as CSV (RFC 4180).
//!
//! Spreadsheets take a field that begins with `=`, `+`, `-` or `@` for a formula, and a stranger may have chosen it: such a
//! field gets an apostrophe before it, as spreadsheets themselves write text.

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};

use super::Shown;
use crate::http_server::with;
use crate::serve::response::answer;

/// Maximum number of rows.
pub const ROWS: i32 = 10_000;

/// The list with this heading, as a file of this name.
pub fn file(
    name: &'static str,
    heading: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Shown {
    let mut text = line(heading.iter().copied());
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str)));
    }
    let answer = answer(StatusCode::OK, "text/csv; charset=utf-8", text);
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    Shown::Answer(match disposition {
        Ok(disposition) => with(answer, CONTENT_DISPOSITION, disposition),
        Err(_) => answer,
    })
}

fn line<'a>(fields: impl Iterator<Item = &'a str>) -> String {
    let fields: Vec<String> = fields.map(field).collect();
    format!("{}\r\n", fields.join(","))
}

fn field(text: &str) -> String {
    let formula = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        "'"
    } else {
        ""
    };
    match formula.is_empty() && !text.contains(['"', ',', '\r', '\n']) {
        true => text.to_owned(),
        false => format!("\"{formula}{}\"", text.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_text() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "\"'=1+1\""),
            ("@sum", "\"'@sum\""),
            ("-5", "\"'-5\""),
            ("", ""),
        ] {
            assert_eq!(field(text), expected, "{text}");
        }
    }
}
