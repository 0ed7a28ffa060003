//! What all pages share: head, menu, foot, and the forms of times, numbers and states.

use maud::{DOCTYPE, Markup, html};

use super::connection::Clock;
use super::database::Database;
use super::rights::Rights;
use super::sessions::{Notice, Session};
use super::site::Site;

/// A page without what all pages share.
pub struct Page {
    pub title: String,
    /// Its entry in the menu.
    pub section: Section,
    /// How often the browser looks for news, in seconds; 0: never.
    pub refresh: u8,
    /// What the search field holds.
    pub search: String,
    pub main: Markup,
}

impl Page {
    /// A page that is renewed every five seconds.
    pub fn new(title: impl Into<String>, section: Section, main: Markup) -> Self {
        Self {
            title: title.into(),
            section,
            refresh: 5,
            search: String::new(),
            main,
        }
    }
}

/// An entry of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Now,
    Messages,
    Failures,
    Delivery,
    Templates,
    Suppressions,
    Log,
}

impl Section {
    const ALL: [Self; 7] = [
        Self::Now,
        Self::Messages,
        Self::Failures,
        Self::Delivery,
        Self::Templates,
        Self::Suppressions,
        Self::Log,
    ];

    /// Its title, its path within a database, and its key.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Now => ("Now", "", "n"),
            Self::Messages => ("Messages", "messages", "m"),
            Self::Failures => ("Failures", "failures", "f"),
            Self::Delivery => ("Delivery", "delivery", "d"),
            Self::Templates => ("Templates", "templates", "t"),
            Self::Suppressions => ("Suppressions", "suppressions", "s"),
            Self::Log => ("Log", "log", "l"),
        }
    }

    fn is_for(self, rights: &Rights) -> bool {
        match self {
            Self::Now | Self::Delivery => rights.sees_transports,
            Self::Messages | Self::Failures => rights.sees_mail,
            Self::Templates => rights.sees_templates,
            Self::Suppressions => rights.sees_suppressions,
            Self::Log => rights.sees_log,
        }
    }

    /// The path of the first page that a role sees.
    pub fn first(rights: &Rights) -> &'static str {
        let first = Self::ALL.into_iter().find(|one| one.is_for(rights));
        first.map_or("", |one| one.names().1)
    }
}

/// What a page is made for.
pub struct View<'a> {
    pub site: &'a Site,
    pub assets: &'a str,
    pub database: &'a Database,
    pub session: &'a Session,
    pub rights: &'a Rights,
    /// The path within the database, with its query.
    pub here: &'a str,
    /// `light` or `dark`, if the reader chose one.
    pub theme: Option<&'a str>,
}

impl View<'_> {
    /// The path of a page of this database.
    pub fn path(&self, within: &str) -> String {
        self.site.path(&self.database.label, within)
    }

    /// A button that posts.
    pub fn button(
        &self,
        within: &str,
        class: &str,
        label: &str,
        fields: &[(&str, &str)],
    ) -> Markup {
        self.form(
            within,
            fields,
            &html! { button class=[some(class)] { (label) } },
        )
    }

    /// A form that posts, with these hidden fields, and leads back to this page.
    pub fn form(&self, within: &str, fields: &[(&str, &str)], contents: &Markup) -> Markup {
        self.form_of("", within, fields, contents)
    }

    /// The same of a class.
    pub fn form_of(
        &self,
        class: &str,
        within: &str,
        fields: &[(&str, &str)],
        contents: &Markup,
    ) -> Markup {
        html! {
            form class=[some(class)] method="post" action=(self.path(within)) {
                input type="hidden" name="csrf" value=(self.session.csrf);
                input type="hidden" name="back" value=(self.here);
                @for (name, value) in fields {
                    input type="hidden" name=(name) value=(value);
                }
                (contents)
            }
        }
    }

    /// The whole page.
    pub fn whole(&self, page: &Page, clock: &Clock, notice: Option<&Notice>) -> Markup {
        let title = format!("{} · {} · mailroom", page.title, self.database.label);
        let refresh = page.refresh.to_string();
        let body = html! {
            (self.bar(page))
            main id="main" tabindex="-1" {
                @if let Some(notice) = notice { (shown(notice)) }
                (page.main)
            }
            (self.foot(clock))
            (self.help())
        };
        document(
            self.site,
            self.assets,
            self.theme,
            (&title, &refresh),
            &body,
            false,
        )
    }

    fn bar(&self, page: &Page) -> Markup {
        let role = &self.session.role;
        let title = self.rights.title();
        html! {
            header class="bar" {
                div {
                    a class="brand" href=(self.path(Section::first(self.rights))) aria-label="mailroom" {
                        img src=(asset(self.site, self.assets, "icon.svg")) alt="";
                        span class="name" { "mailroom" }
                    }
                    span class="database" { (self.database.label) }
                    @if self.rights.sees_addresses {
                        form class="search" role="search" action=(self.path("messages")) {
                            label class="hidden" for="search" { "Search messages by address, id or key" }
                            input id="search" type="search" name="q" value=(page.search)
                                placeholder="Address, id or key" autocomplete="off" spellcheck="false";
                            button { "Search" }
                        }
                    }
                    div class="who" {
                        span class="role" title={ (role) " (" (title) ")" } {
                            (role) " " span class="rank muted" { "(" (title) ")" }
                        }
                        button type="button" id="theme" class="js" { span class="word" { "System" } }
                        (self.button("logout", "", "Log out", &[]))
                    }
                }
                nav aria-label="Pages" {
                    ul {
                        @for section in Section::ALL.into_iter().filter(|one| one.is_for(self.rights)) {
                            @let (title, path, key) = section.names();
                            @let current = (section == page.section).then_some("page");
                            li { a href=(self.path(path)) data-key=(key) aria-current=[current] { (title) } }
                        }
                    }
                }
            }
        }
    }

    fn foot(&self, clock: &Clock) -> Markup {
        let offset = clock.now.get(19..).unwrap_or_default();
        html! {
            footer class="foot" {
                span id="as-of" data-live { "As of " (time(&clock.now, clock)) }
                span { "Times are in " (clock.zone) " (UTC" (offset) ")" }
                span { "mailroom " (self.rights.version) }
                span class="tools js" {
                    button type="button" class="plain small keys" id="help-open" { "Keys" }
                    span class="live" id="live" {
                        span id="live-text" role="status" {}
                        button type="button" class="small" id="pause" { "Pause" }
                    }
                }
            }
        }
    }

    fn help(&self) -> Markup {
        let keys: [(&[&str], &str); 5] = [
            (&["/"], "search"),
            (&["j", "k"], "next and previous row"),
            (&["Enter"], "open the row"),
            (&["r"], "pause and resume updates"),
            (&["?"], "this list"),
        ];
        html! {
            dialog id="help" aria-labelledby="help-title" {
                h2 id="help-title" { "Keys" }
                dl class="facts" {
                    @for (names, does) in keys {
                        dt { @for name in names { kbd { (name) } " " } }
                        dd { (does) }
                    }
                    @for section in Section::ALL.into_iter().filter(|one| one.is_for(self.rights)) {
                        @let (title, _, key) = section.names();
                        dt { kbd { (key) } }
                        dd { (title) }
                    }
                }
                form method="dialog" { button { "Close" } }
            }
        }
    }
}

/// A document with this title, and this number of seconds until it is renewed.
pub fn document(
    site: &Site,
    assets: &str,
    theme: Option<&str>,
    (title, refresh): (&str, &str),
    body: &Markup,
    is_alone: bool,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[theme] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) }
                link rel="icon" type="image/svg+xml" href=(asset(site, assets, "icon.svg"));
                link rel="stylesheet" href=(asset(site, assets, "page.css"));
                script src=(asset(site, assets, "page.js")) defer {}
            }
            body class=[is_alone.then_some("alone")] data-root=(site.root("")) data-refresh=(refresh) {
                a class="skip" href="#main" { "Skip to the content" }
                (body)
            }
        }
    }
}

/// The path of an asset.
pub fn asset(site: &Site, version: &str, name: &str) -> String {
    site.root(&format!("-/{version}/{name}"))
}

/// What was done, or why not.
pub fn shown(notice: &Notice) -> Markup {
    let (class, role) = match notice.is_error {
        true => ("note bad", "alert"),
        false => ("note", "status"),
    };
    html! {
        div class=(class) role=(role) {
            p { strong { (notice.message) } }
            @for line in [&notice.detail, &notice.hint] {
                @if !line.is_empty() { p { (line) } }
            }
        }
    }
}

/// The class of an element, if there is one.
pub fn some(class: &str) -> Option<&str> {
    (!class.is_empty()).then_some(class)
}

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
        @if !why.is_empty() { span class="why" { (why) } }
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
        @for part in name.split_inclusive('_') { (part) @if part.ends_with('_') { wbr; } }
    }
}

/// Text that may be copied.
pub fn copyable(text: &str, what: &str) -> Markup {
    html! {
        code class="any" { (text) } " "
        button type="button" class="plain small js" data-copy=(text) aria-label={ "Copy " (what) } { "Copy" }
    }
}

/// What is there instead of an empty list.
pub fn empty(title: &str, why: &Markup) -> Markup {
    html! { div class="empty" { p { strong { (title) } (why) } } }
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
