//! What all pages share: head, menu, foot, forms, notices.

use maud::{DOCTYPE, Markup, html};

use super::connection::Clock;
use super::database::Database;
use super::rights::Rights;
use super::sessions::{Notice, Session};
use super::site::Site;
use super::words::{one_way, time};

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

    /// A button that posts what cannot be taken back: it opens this sentence, with the button that does it.
    pub fn question(
        &self,
        within: &str,
        label: &str,
        sentence: &str,
        fields: &[(&str, &str)],
    ) -> Markup {
        html! {
            details {
                summary { (label) }
                (self.form(within, fields, &html! {
                    p { (sentence) }
                    button class="harm" { (label) }
                }))
            }
        }
    }

    /// A form that posts, with these hidden fields, and leads back to this page.
    pub fn form(&self, within: &str, fields: &[(&str, &str)], contents: &Markup) -> Markup {
        self.form_of(("", self.here), within, fields, contents)
    }

    /// The same of a class, which leads back to another page of this database.
    pub fn form_of(
        &self,
        (class, back): (&str, &str),
        within: &str,
        fields: &[(&str, &str)],
        contents: &Markup,
    ) -> Markup {
        html! {
            form class=[some(class)] method="post" action=(self.path(within)) {
                input type="hidden" name="csrf" value=(self.session.csrf);
                input type="hidden" name="back" value=(back);
                @for (name, value) in fields {
                    input type="hidden" name=(name) value=(value);
                }
                (contents)
            }
        }
    }

    /// The whole page.
    pub fn whole(&self, page: &Page, clock: &Clock, notice: Option<&Notice>) -> Markup {
        let title = format!(
            "{} · {} · mailroom",
            one_way(&page.title),
            self.database.label
        );
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
            p { strong { (one_way(&notice.message)) } }
            @for line in [&notice.detail, &notice.hint] {
                @if !line.is_empty() { p { (one_way(line)) } }
            }
        }
    }
}

/// What is there instead of an empty list.
pub fn empty(title: &str, why: &Markup) -> Markup {
    html! { div class="empty" { p { strong { (title) } (why) } } }
}

/// The class of an element, if there is one.
pub fn some(class: &str) -> Option<&str> {
    (!class.is_empty()).then_some(class)
}
