//! How times, numbers, states and names are written. Pure.

use maud::{Markup, html};

use super::connection::Clock;

/// A time of the database, as short as it is clear today.
pub fn time(iso: &str, clock: &Clock) -> Markup {
    let Some((date, rest)) = iso.split_once('T') else {
        // It is infinite, or missing.
        return html! { "–" };
    };
    let clock_time = rest.get(..8).unwrap_or(rest);
    let today = clock.now.get(..10).unwrap_or_default();
    let short = match date == today {
        true => clock_time.to_owned(),
        false => format!(
            "{} {}",
            day(date, today),
            clock_time.get(..5).unwrap_or_default()
        ),
    };
    html! {
        time datetime=(iso) title={ (date) " " (clock_time) } { (short) }
    }
}

/// A time of the database that may be missing.
pub fn maybe_time(iso: Option<&str>, clock: &Clock) -> Markup {
    time(iso.unwrap_or_default(), clock)
}

/// A day, without the year if it is this year: `28 Nov`.
fn day(date: &str, today: &str) -> String {
    let month = match date.get(5..7) {
        Some("01") => "Jan",
        Some("02") => "Feb",
        Some("03") => "Mar",
        Some("04") => "Apr",
        Some("05") => "May",
        Some("06") => "Jun",
        Some("07") => "Jul",
        Some("08") => "Aug",
        Some("09") => "Sep",
        Some("10") => "Oct",
        Some("11") => "Nov",
        Some("12") => "Dec",
        // A year of five digits.
        _ => return date.to_owned(),
    };
    let (year, number) = (date.get(..4), date.get(8..10).unwrap_or_default());
    let number = number.trim_start_matches('0');
    match (year, today.get(..4)) {
        (Some(year), this) if this != Some(year) => format!("{number} {month} {year}"),
        _ => format!("{number} {month}"),
    }
}

/// Seconds in the largest unit that fits: `0.31 s`, `12 min`.
pub fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    match seconds {
        0.0..1.0 => format!("{seconds:.2} s"),
        1.0..120.0 => format!("{seconds:.0} s"),
        120.0..7_200.0 => format!("{:.0} min", seconds / 60.0),
        7_200.0..172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// A number with commas: `1,203`.
pub fn number(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A size in bytes: `24 kB`.
pub fn size(bytes: i64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// The states of the outbox, with the words for people and the class of the style sheet. The provider has accepted what is
/// sent: whether it was delivered, events tell.
pub const STATES: [(&str, &str, &str); 7] = [
    ("scheduled", "waits", "waits"),
    ("claimed", "being sent", "sending"),
    ("sent", "accepted", "accepted"),
    ("error", "failed", "failed"),
    ("cancelled", "cancelled", "cancelled"),
    ("expired", "expired", "expired"),
    ("suppressed", "suppressed", "suppressed"),
];

/// A state as a word with its shape, and why.
pub fn state(name: &str, why: &str) -> Markup {
    let known = STATES.into_iter().find(|(known, _, _)| *known == name);
    let (_, word, class) = known.unwrap_or((name, name, ""));
    html! {
        span class={ "state " (class) } { (word) }
        @if !why.is_empty() { span class="why" { bdi { (why) } } }
    }
}

/// A deliverer: the worker by that name alone, another by its host.
pub fn deliverer(name: &str) -> String {
    let (name, gone) = match name.strip_suffix(" *") {
        Some(name) => (name, " (gone)"),
        None => (name, ""),
    };
    if name.starts_with("mailroom worker/") {
        return format!("the worker{gone}");
    }
    match name
        .strip_prefix("mailroom ")
        .and_then(|name| name.rsplit_once('/'))
    {
        Some((name, _)) => format!("{name}{gone}"),
        None => format!("{name}{gone}"),
    }
}

/// A name that may be broken after its underscores.
pub fn breakable(name: &str) -> Markup {
    html! {
        bdi { @for part in name.split_inclusive('_') { (part) @if part.ends_with('_') { wbr; } } }
    }
}

/// Without the characters that turn the direction of what follows, for what has no markup: titles, notices, files. Elsewhere
/// text that strangers chose is in `bdi`, beyond which they have no effect.
pub fn one_way(text: &str) -> String {
    let turns = ['\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    text.chars()
        .filter(|c| !turns.iter().any(|range| range.contains(c)))
        .collect()
}

/// Texts that strangers chose, with commas between them.
pub fn listed(texts: &[String]) -> Markup {
    html! {
        @for (at, text) in texts.iter().enumerate() {
            @if at > 0 { ", " } bdi { (text) }
        }
    }
}

/// The first three of several such texts, and how many more there are.
pub fn some_of(texts: &[String], others: usize) -> Markup {
    let named = texts.get(..3).unwrap_or(texts);
    let more = texts.len() - named.len() + others;
    html! { (listed(named)) @if more > 0 { " and " (more) " more" } }
}

/// Text that may be copied.
pub fn copyable(text: &str, what: &str) -> Markup {
    html! {
        span class="copy" {
            code class="any" { bdi { (text) } }
            button type="button" class="plain small js" data-copy=(text) aria-label={ "Copy " (what) } { "Copy" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_short_as_they_are_clear() {
        let clock = Clock {
            now: "2026-11-28T14:14:07+01:00".to_owned(),
            zone: "Europe/Berlin".to_owned(),
        };
        for (iso, expected) in [
            ("2026-11-28T14:05:01+01:00", "14:05:01"),
            ("2026-11-08T08:00:00+01:00", "8 Nov 08:00"),
            ("2025-11-28T14:05:01+01:00", "28 Nov 2025 14:05"),
            ("", "–"),
        ] {
            let shown = time(iso, &clock).into_string();
            assert!(shown.contains(expected), "{iso}: {shown}");
        }
    }

    #[test]
    fn no_text_turns_the_direction_of_what_follows() {
        let evil = "Invoice \u{202e}4301 gpj\u{2066}.exe";
        assert_eq!(one_way(evil), "Invoice 4301 gpj.exe");
        assert_eq!(
            one_way("\u{5e9}\u{5dc}\u{5d5}\u{5dd} 1"),
            "\u{5e9}\u{5dc}\u{5d5}\u{5dd} 1"
        );
        let all = [evil.to_owned(), "b".to_owned()];
        let expected = format!("<bdi>{evil}</bdi>, <bdi>b</bdi>");
        assert_eq!(listed(&all).into_string(), expected);
        assert!(
            state("error", evil)
                .into_string()
                .contains(&format!("<bdi>{evil}</bdi>"))
        );
    }

    #[test]
    fn deliverers_are_called_by_their_hosts() {
        for (name, expected) in [
            ("mailroom worker/1/6b0c2281.3dcc", "the worker"),
            ("mailroom worker/1/6b0c2281.3dcc *", "the worker (gone)"),
            ("mailroom send/mx2.example.com/00ff", "send/mx2.example.com"),
            ("client/7", "client/7"),
        ] {
            assert_eq!(deliverer(name), expected);
        }
    }

    #[test]
    fn numbers_and_spans_are_short() {
        let numbers = [0, 999, 1_203, 1_000_000, -4_500].map(number);
        assert_eq!(numbers, ["0", "999", "1,203", "1,000,000", "-4,500"]);
        let spans = [0.307, 12.4, 130.0, 7_300.0, 200_000.0].map(span);
        assert_eq!(spans, ["0.31 s", "12 s", "2 min", "2 h", "2 days"]);
        let sizes = [999, 24_500, 1_500_000].map(size);
        assert_eq!(sizes, ["999 B", "24 kB", "1.5 MB"]);
    }
}
