//! The log: one line for each event on standard error, as text or as a JSON object. It contains no secret: every
//! message is a text of this program or the first line of a server's error.

mod throttle;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mailroom_core::deliver::store::LogLine;
use mailroom_core::line;
use serde_json::{Map, Value};

pub use self::throttle::Throttle;

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `2026-11-24T06:00:00Z LOG database=app …`.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The log of one database, or of the whole program.
#[derive(Clone, Debug)]
pub struct Log {
    format: Format,
    database: Option<String>,
}

impl Log {
    /// The log of the program.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            database: None,
        }
    }

    /// The log of one database.
    pub fn of_database(&self, name: &str) -> Self {
        Self {
            format: self.format,
            database: Some(name.to_owned()),
        }
    }

    /// Writes at level LOG.
    pub fn log(&self, message: &str) {
        self.write("LOG", message, "", "");
    }

    /// Writes at level WARNING.
    pub fn warn(&self, message: &str, detail: &str, hint: &str) {
        self.write("WARNING", message, detail, hint);
    }

    /// Writes at level WARNING what a [`Throttle`] has let through, after so many lines that it has not.
    pub fn warn_after(&self, message: &str, left_out: u64) {
        let detail = match left_out {
            0 => String::new(),
            _ => format!("Since the last such line, {left_out} more were left out."),
        };
        self.warn(message, &detail, "");
    }

    /// Writes a line of the job runner.
    pub fn line(&self, line: &LogLine) {
        match line {
            LogLine::Log(message) => self.log(message),
            LogLine::Warning {
                message,
                detail,
                hint,
            } => self.warn(message, detail, hint),
        }
    }

    fn write(&self, level: &str, message: &str, detail: &str, hint: &str) {
        let entry = Entry {
            now: SystemTime::now(),
            level,
            database: self.database.as_deref(),
            message,
            detail,
            hint,
        };
        let mut line = match self.format {
            Format::Text => entry.as_text(),
            Format::Json => entry.as_json(),
        };
        line.push('\n');
        // One write for the whole line. An error is ignored, because a log that cannot be written must not stop mail.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

struct Entry<'a> {
    now: SystemTime,
    level: &'a str,
    database: Option<&'a str>,
    message: &'a str,
    detail: &'a str,
    hint: &'a str,
}

impl Entry<'_> {
    fn as_text(&self) -> String {
        let mut line = format!("{} {}", timestamp(self.now), self.level);
        if let Some(database) = self.database {
            line.push_str(&format!(" database={}", plain(database)));
        }
        line.push_str(&format!(" {}", plain(self.message)));
        for (name, value) in [("DETAIL", self.detail), ("HINT", self.hint)] {
            if !value.is_empty() {
                line.push_str(&format!("  {name}: {}", plain(value)));
            }
        }
        line
    }

    fn as_json(&self) -> String {
        let mut object = Map::new();
        let fields = [
            ("level", self.level),
            ("database", self.database.unwrap_or_default()),
            ("message", self.message),
            ("detail", self.detail),
            ("hint", self.hint),
        ];
        object.insert("time".to_owned(), timestamp(self.now).into());
        for (name, value) in fields {
            if !value.is_empty() {
                object.insert(name.to_owned(), value.into());
            }
        }
        Value::Object(object).to_string()
    }
}

/// Replaces line breaks.
fn plain(text: &str) -> String {
    let visible = |c: char| if line::is_control(c) { ' ' } else { c };
    text.chars().map(visible).collect()
}

/// The format `2026-01-02T03:04:05Z` (RFC 3339).
pub fn timestamp(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the leap day.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> String {
        timestamp(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    fn entry<'a>(message: &'a str, detail: &'a str, hint: &'a str) -> Entry<'a> {
        Entry {
            now: UNIX_EPOCH + Duration::from_secs(1_795_500_000),
            level: "LOG",
            database: Some("app"),
            message,
            detail,
            hint,
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(at(1_795_500_000), "2026-11-24T06:00:00Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn text_is_one_line() {
        let text = entry("it\nbroke", "", "Mend it.").as_text();
        assert_eq!(
            text,
            "2026-11-24T06:00:00Z LOG database=app it broke  HINT: Mend it."
        );
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = entry("it \"broke\"\n", "why", "").as_json();
        assert!(!text.contains('\n'));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["time"], "2026-11-24T06:00:00Z");
        assert_eq!(value["level"], "LOG");
        assert_eq!(value["database"], "app");
        assert_eq!(value["message"], "it \"broke\"\n");
        assert_eq!(value["detail"], "why");
        assert_eq!(value.get("hint"), None);
    }
}
