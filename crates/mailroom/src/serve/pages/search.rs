//! What of the messages is looked for: the form above the list.

use mailroom_core::address;
use maud::{Markup, html};

use crate::serve::connection::{Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::View;
use crate::serve::rights::Rights;
use crate::serve::words::{STATES, one_way};

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    pub text: Option<String>,
    pub state: Option<String>,
    pub kind: Option<String>,
    pub transport: Option<String>,
    pub before: Option<i64>,
}

impl Search {
    /// What a query asks for. A role that sees no addresses and keys does not search for them.
    pub fn of(form: &Form, rights: &Rights) -> Self {
        let text = |name: &str| form.get(name).map(str::to_owned);
        Self {
            text: text("q").filter(|_| rights.sees_addresses),
            state: text("state"),
            kind: text("kind"),
            // Mail that clients deliver has none.
            transport: text("transport").map(|name| if name == "-" { String::new() } else { name }),
            before: form.number("before"),
        }
    }

    /// The address that is looked for, without the name of its person. The ids of providers may look like one; a
    /// message_id, as programs write it before a domain, does not.
    pub fn address(&self) -> Option<&str> {
        let text = self.text.as_deref()?;
        let bare = match text
            .strip_suffix('>')
            .and_then(|rest| rest.rsplit_once('<'))
        {
            Some((_, address)) => address.trim(),
            None => text,
        };
        (address::key(bare).is_ok() && !has_uuid(bare)).then_some(bare)
    }

    /// Whether it leaves any mail out.
    pub fn is_filter(&self) -> bool {
        self.text.is_some()
            || self.state.is_some()
            || self.kind.is_some()
            || self.transport.is_some()
    }

    /// The query of the page that begins before this id.
    pub fn query(&self, before: Option<i64>) -> String {
        let of = |value: &Option<String>| value.clone().unwrap_or_default();
        let transport = match self.transport.as_deref() {
            Some("") => "-".to_owned(),
            _ => of(&self.transport),
        };
        let before = before.map(|id| id.to_string()).unwrap_or_default();
        query(&[
            ("q", &of(&self.text)),
            ("state", &of(&self.state)),
            ("kind", &of(&self.kind)),
            ("transport", &transport),
            ("before", &before),
        ])
    }
}

/// Whether a text has a UUID in it, with its hyphens.
fn has_uuid(text: &str) -> bool {
    let is_uuid = |octets: &[u8]| {
        octets.iter().enumerate().all(|(at, octet)| match at {
            8 | 13 | 18 | 23 => *octet == b'-',
            _ => octet.is_ascii_hexdigit(),
        })
    };
    text.as_bytes().windows(36).any(is_uuid)
}

/// Kinds and transports to choose from.
pub struct Choices {
    kinds: Vec<String>,
    transports: Vec<String>,
}

impl Choices {
    /// # Errors
    /// The statement failed.
    pub async fn find(view: &View<'_>, statements: &Statements<'_>) -> Result<Self, Failure> {
        let kinds = match view.rights.sees_templates {
            true => include_str!("../../../sql/page/kinds.sql"),
            false => include_str!("../../../sql/page/kinds_monitor.sql"),
        };
        let kinds = statements.all(kinds, &[]).await?;
        let kinds: Result<_, _> = kinds.iter().map(|cells| cells.text("kind")).collect();
        let transports = match view.rights.sees_transports {
            true => {
                let statement = include_str!("../../../sql/page/transports.sql");
                statements.all(statement, &[]).await?
            }
            false => Vec::new(),
        };
        let transports: Result<_, _> = transports.iter().map(|cells| cells.text("name")).collect();
        Ok(Self {
            kinds: kinds?,
            transports: transports?,
        })
    }
}

/// The form.
pub fn filters(view: &View<'_>, search: &Search, choices: &Choices) -> Markup {
    let states: Vec<(&str, &str)> = STATES
        .iter()
        .map(|(name, word, _)| (*name, *word))
        .collect();
    let mut kinds: Vec<(&str, &str)> = choices
        .kinds
        .iter()
        .map(|kind| (kind.as_str(), kind.as_str()))
        .collect();
    kinds.retain(|(kind, _)| !kind.is_empty());
    let named = choices
        .transports
        .iter()
        .map(|name| (name.as_str(), name.as_str()));
    let transports: Vec<(&str, &str)> = named.chain([("-", "none (clients)")]).collect();
    let transport = search
        .transport
        .as_deref()
        .map(|name| if name.is_empty() { "-" } else { name });
    html! {
        form class="filters" action=(view.path("messages")) {
            (choice("State", "state", &states, search.state.as_deref()))
            (choice("Kind", "kind", &kinds, search.kind.as_deref()))
            (choice("Transport", "transport", &transports, transport))
            button { "Filter" }
            @if search.is_filter() { a class="button plain" href=(view.path("messages")) { "Clear" } }
        }
    }
}

/// A choice of a value, or any. What is chosen is there even if it is not among the values.
fn choice(label: &str, name: &str, values: &[(&str, &str)], chosen: Option<&str>) -> Markup {
    let is_known = |value: &str| values.iter().any(|(known, _)| *known == value);
    let other = chosen.filter(|value| !is_known(value));
    html! {
        div class="field" {
            label for={ "f-" (name) } { (label) }
            select id={ "f-" (name) } name=(name) {
                option value="" { "Any" }
                @for (value, word) in values {
                    option value=(value) selected[chosen == Some(*value)] { (one_way(word)) }
                }
                @if let Some(other) = other { option value=(other) selected { (one_way(other)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_from_an_id() {
        let uuid = "01900000-0000-7000-8000-000000000000";
        for (text, expected) in [
            ("ann@example.com", Some("ann@example.com")),
            ("Ann Lee <ann@example.com>", Some("ann@example.com")),
            ("\"Lee, Ann\" < Ann@Example.com >", Some("Ann@Example.com")),
            ("<ann@example.com>", Some("ann@example.com")),
            ("grüße@exämple.com", Some("grüße@exämple.com")),
            ("ann@", None),
            ("@example.com", None),
            ("ann", None),
            ("999,999", None),
            (&format!("<{uuid}@example.com>"), None),
            (&format!("Message-ID: <{uuid}@example.com>"), None),
            (&format!("{uuid}@shop"), None),
        ] {
            let search = Search {
                text: Some(text.to_owned()),
                ..Search::default()
            };
            assert_eq!(search.address(), expected, "{text}");
        }
    }
}
