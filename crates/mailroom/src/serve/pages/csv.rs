//! A list as CSV (RFC 4180).
//!
//! Spreadsheets take a field that begins with `=`, `+`, `-` or `@` for a formula, and a stranger may have chosen it: such a
//! field gets an apostrophe before it, as spreadsheets themselves write text. Where the decimal separator is a comma they
//! split lines at semicolons, whether quoted or not, so a formula after one gets it too. The file begins with a byte order
//! mark, without which Excel reads it in the character set of the country.

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};

use super::Shown;
use crate::http_server::with;
use crate::serve::response::answer;
use crate::serve::words::one_way;

/// Maximum number of rows.
pub const ROWS: i32 = 10_000;

/// The list with this heading, as a file of this name. One of as many rows as it may have says that there may be more.
pub fn file(
    name: &'static str,
    heading: &[&str],
    rows: impl ExactSizeIterator<Item = Vec<String>>,
) -> Shown {
    let is_full = i32::try_from(rows.len()).is_ok_and(|len| len >= ROWS);
    let rest = is_full.then(|| format!("incomplete: these are the first {ROWS}"));
    file_until(name, heading, rows, rest)
}

/// The same with a last line about what it does not have.
pub fn file_until(
    name: &'static str,
    heading: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    rest: Option<String>,
) -> Shown {
    let mut text = format!("\u{feff}{}", line(heading.iter().copied()));
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str)));
    }
    if let Some(rest) = rest {
        text.push_str(&line([rest.as_str()].into_iter()));
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
    let text = one_way(text);
    let mut written = String::with_capacity(text.len() + 2);
    let mut before = ';';
    for c in text.chars() {
        let is_first = written.is_empty();
        let begins = matches!(before, ';' | '\t' | '\r' | '\n');
        let is_formula = matches!(c, '=' | '+' | '-' | '@');
        if begins && (is_formula || (is_first && matches!(c, '\t' | '\r'))) {
            written.push('\'');
        }
        written.push(c);
        before = c;
    }
    match written == text && !text.contains(['"', ',', ';', '\t', '\r', '\n']) {
        true => written,
        false => format!("\"{}\"", written.replace('"', "\"\"")),
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
            ("\tx", "\"'\tx\""),
            ("a;b", "\"a;b\""),
            ("a;=cmd|x", "\"a;'=cmd|x\""),
            ("a\n+1", "\"a\n'+1\""),
            ("1 + 1", "1 + 1"),
            ("a\u{202e}b", "ab"),
            ("", ""),
        ] {
            assert_eq!(field(text), expected, "{text}");
        }
    }
}
