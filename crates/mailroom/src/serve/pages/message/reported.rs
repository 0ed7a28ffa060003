//! What providers reported of a mail: one rule for the page of a message, for the list and for the answer.
//!
//! Of an address, what proves that the mail was sent counts more than what says that it was not, which is of an attempt
//! before. Of a mail to several, the worst comes first.

use std::collections::BTreeMap;

/// A type of event: how good it is (a class of the style sheet), what the mail did, what became of a recipient, and what
/// that means.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub class: &'static str,
    pub did: &'static str,
    pub counted: &'static str,
    pub means: &'static str,
}

impl Kind {
    /// Of some recipient, one of any number: the class, and a sentence.
    pub fn of_any(&self) -> (&'static str, String) {
        let class = if self.class == "good" { "" } else { self.class };
        (class, format!("Reported of a recipient: {}.", self.counted))
    }
}

const fn kind(
    name: &'static str,
    class: &'static str,
    did: &'static str,
    counted: &'static str,
    means: &'static str,
) -> Kind {
    Kind {
        name,
        class,
        did,
        counted,
        means,
    }
}

/// From what counts most for an address; answer.sql has the same order.
const KINDS: [Kind; 8] = [
    kind(
        "bounced",
        "bad",
        "bounced",
        "bounced",
        "The recipient's server refused it.",
    ),
    kind(
        "complained",
        "warning",
        "was delivered, and the recipient called it spam",
        "called it spam",
        "Further mail is suppressed, but for links of the account.",
    ),
    kind(
        "unsubscribed",
        "good",
        "was delivered, and the recipient unsubscribed",
        "unsubscribed",
        "Further mail of the list is suppressed.",
    ),
    kind(
        "delivered",
        "good",
        "was delivered",
        "delivered",
        "The recipient's server took it.",
    ),
    kind(
        "rejected",
        "bad",
        "was refused for this address",
        "refused",
        "It was not sent to it.",
    ),
    kind(
        "failed",
        "bad",
        "could not be processed by the provider",
        "not processed",
        "It was not sent.",
    ),
    kind(
        "suppressed",
        "bad",
        "was not sent to this address",
        "suppressed",
        "The address is suppressed.",
    ),
    kind(
        "deferred",
        "warning",
        "was put off by the recipient's server",
        "put off",
        "The provider tries again.",
    ),
];

/// The kind of this name; `None` for one that says nothing of what became of the mail.
pub fn of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

fn rank(kind: &Kind) -> (u8, usize) {
    let badness = match kind.class {
        "bad" => 0,
        "warning" => 1,
        _ => 2,
    };
    (badness, position(kind))
}

fn position(kind: &Kind) -> usize {
    let at = KINDS.iter().position(|known| known == kind);
    at.unwrap_or(KINDS.len())
}

/// What counts most of several names, of one recipient.
pub fn of_one<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'static Kind> {
    names.filter_map(of).min_by_key(|kind| position(kind))
}

/// The worst of several names, of any recipients. What was put off counts if nothing else is known: it may have been
/// delivered since.
pub fn worst<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'static Kind> {
    names
        .filter_map(of)
        .min_by_key(|kind| (kind.name == "deferred", rank(kind)))
}

/// What became of a mail, by its events: the class, and a sentence.
pub fn of_mail(
    events: &[(Option<String>, String)],
    recipients: usize,
) -> Option<(&'static str, String)> {
    let mut known: BTreeMap<Option<&str>, &'static Kind> = BTreeMap::new();
    for (recipient, name) in events {
        let Some(kind) = of(name) else { continue };
        // The only one may be written in another way.
        let recipient = recipient.as_deref().filter(|_| recipients > 1);
        known
            .entry(recipient)
            .and_modify(|before| {
                if position(kind) < position(before) {
                    *before = kind;
                }
            })
            .or_insert(kind);
    }
    if recipients <= 1 {
        return known.get(&None).map(|kind| {
            (
                kind.class,
                format!("This message {}. {}", kind.did, kind.means),
            )
        });
    }
    let worst = *known.values().min_by_key(|kind| rank(kind))?;
    let unknown = known.remove(&None);
    let count = |kind: &Kind| known.values().filter(|known| **known == kind).count();
    let mut parts: Vec<(&Kind, usize)> = KINDS.iter().map(|kind| (kind, count(kind))).collect();
    parts.retain(|(_, count)| *count > 0);
    parts.sort_by_key(|(kind, _)| rank(kind));
    let parts: Vec<String> = parts
        .iter()
        .map(|(kind, count)| format!("{count} {}", kind.counted))
        .collect();
    let mut sentence = match parts.is_empty() {
        true => String::new(),
        false => format!("Of {recipients} recipients: {}.", parts.join(", ")),
    };
    if let Some(kind) = unknown {
        let more = format!("Of one that is not named: {}.", kind.counted);
        sentence = format!("{sentence} {more}").trim().to_owned();
    }
    // Good only if it is of all.
    let class = match worst.class {
        "good" if known.len() < recipients => "",
        class => class,
    };
    Some((class, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two(events: &[(&str, &str)]) -> Option<(String, String)> {
        let events: Vec<(Option<String>, String)> = events
            .iter()
            .map(|(to, name)| {
                let to = (!to.is_empty()).then(|| (*to).to_owned());
                (to, (*name).to_owned())
            })
            .collect();
        of_mail(&events, 2).map(|(class, sentence)| (class.to_owned(), sentence))
    }

    #[test]
    fn a_bounce_is_not_hidden_by_another_recipient() {
        for (events, class, sentence) in [
            (
                &[("a", "bounced"), ("b", "delivered")][..],
                "bad",
                "Of 2 recipients: 1 bounced, 1 delivered.",
            ),
            (
                &[("b", "delivered"), ("a", "deferred"), ("a", "bounced")],
                "bad",
                "Of 2 recipients: 1 bounced, 1 delivered.",
            ),
            (
                &[("a", "deferred"), ("a", "delivered"), ("b", "delivered")],
                "good",
                "Of 2 recipients: 2 delivered.",
            ),
            (&[("a", "delivered")], "", "Of 2 recipients: 1 delivered."),
            (
                &[("a", "delivered"), ("", "bounced")],
                "bad",
                "Of 2 recipients: 1 delivered. Of one that is not named: bounced.",
            ),
            // Of an attempt before.
            (
                &[("a", "rejected"), ("a", "delivered"), ("b", "delivered")],
                "good",
                "Of 2 recipients: 2 delivered.",
            ),
        ] {
            let expected = Some((class.to_owned(), sentence.to_owned()));
            assert_eq!(of_two(events), expected, "{events:?}");
        }
        assert_eq!(of_two(&[("a", "accepted")]), None);
        let one = [
            (Some("other@example.com".to_owned()), "deferred".to_owned()),
            (None, "bounced".to_owned()),
        ];
        let sentence = "This message bounced. The recipient's server refused it.".to_owned();
        assert_eq!(of_mail(&one, 1), Some(("bad", sentence)));
    }

    #[test]
    fn without_recipients_the_worst_is_told_and_of_one_what_counts_most() {
        for (names, of_any, of_the_one) in [
            (&["accepted"][..], None, None),
            (
                &["delivered", "bounced", "accepted"],
                Some("bounced"),
                Some("bounced"),
            ),
            (
                &["deferred", "delivered"],
                Some("delivered"),
                Some("delivered"),
            ),
            (&["deferred", "failed"], Some("failed"), Some("failed")),
            // Of an attempt before, or of another recipient.
            (&["failed", "delivered"], Some("failed"), Some("delivered")),
        ] {
            let name = |kind: Option<&'static Kind>| kind.map(|kind| kind.name);
            assert_eq!(name(worst(names.iter().copied())), of_any, "{names:?}");
            assert_eq!(name(of_one(names.iter().copied())), of_the_one, "{names:?}");
        }
    }

    #[test]
    fn the_answer_has_the_same_order() {
        let order = KINDS.map(|kind| kind.name).join(",");
        assert!(
            include_str!("../../../../sql/page/answer.sql").contains(&format!("'{{{order}}}'"))
        );
    }
}
