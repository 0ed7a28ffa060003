//! "Did she get it?": one sentence about the last message to an address, one about what waits, and what is known of the
//! address.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::message::buttons::end_links;
use super::message::reported;
use super::message::verdict::{Verdict, Wait, by, of_state, of_used_link};
use super::message_acts::link_for;
use super::rows::{Row, title};
use crate::serve::cells::Cells;
use crate::serve::connection::{Clock, Failure, Statements};
use crate::serve::form::query;
use crate::serve::layout::View;
use crate::serve::words::{maybe_time, number, span};

/// What is known.
pub struct Answer {
    typed: String,
    cells: Cells,
    /// Why the message of the sentence waits.
    wait: Wait,
    next: Option<Next>,
}

/// What waits besides: how many messages, and the one that is due first.
struct Next {
    waiting: usize,
    what: String,
    at: Option<String>,
}

impl Answer {
    /// Finds it for the address that was typed, and messages to it.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn find(
        statements: &Statements<'_>,
        typed: &str,
        rows: &[Row],
    ) -> Result<Self, Failure> {
        let last = last(rows);
        let statement = include_str!("../../../sql/page/answer.sql");
        let id = last.map(|row| row.id);
        let parameters = [(&typed as _, Type::TEXT), (&id as _, Type::INT8)];
        Ok(Self {
            typed: typed.to_owned(),
            cells: statements.one(statement, &parameters).await?,
            wait: Wait {
                reason: last.map(|row| row.why.clone()).unwrap_or_default(),
                until: None,
            },
            next: Next::find(rows, id),
        })
    }

    /// As it is shown.
    ///
    /// # Errors
    /// A column cannot be read.
    pub fn shown(&self, view: &View<'_>, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let Some(address) = cells.maybe("address")? else {
            return Ok(html! {
                div class="verdict" {
                    p { "“" bdi { (self.typed) } "” is not an address." }
                }
            });
        };
        let suppressed = cells.maybe("suppressed_for")?;
        let verdict = match cells.maybe_number("id")? {
            Some(_) => Some(self.verdict(&address, clock)?),
            None => None,
        };
        Ok(html! {
            @if let Some(reason) = suppressed { (self.suppressed(view, &address, &reason, clock)?) }
            @if let Some(verdict) = verdict {
                div class={ "verdict " (verdict.class) } {
                    p { (verdict.first) }
                    @if !verdict.second.0.is_empty() { p { (verdict.second) } }
                    @if let Some(next) = &self.next { p { (next.shown(clock)) } }
                }
            }
            @if cells.maybe_number("account_id")?.is_some() { (self.account(view, &address, clock)?) }
        })
    }

    fn verdict(&self, address: &str, clock: &Clock) -> Result<Verdict, Failure> {
        let cells = &self.cells;
        let (subject, kind) = (cells.text("subject")?, cells.text("kind")?);
        let what = html! {
            "The last message to " bdi { (address) }
            @if !subject.is_empty() { ", “" bdi { (subject) } "”," }
            @else if !kind.is_empty() { ", of kind " bdi { (kind) } "," }
        };
        if let Some(used) = cells.maybe("link_used_at")? {
            return Ok(of_used_link(&what, &used, clock));
        }
        if let Some(verdict) = self.reported(&what, clock)? {
            return Ok(verdict);
        }
        let verdict = of_state(&what, cells, &self.wait, clock)?;
        let second = match cells.text("state")?.as_str() {
            "sent" if cells.flag("has_events")? => {
                html! { "What the recipient's server did with it has not been reported yet." }
            }
            "sent" => html! {
                "Whether the recipient's server took it is not known: no events have come from " (by(cells)?) "."
            },
            "scheduled" => html! {
                "It is due at " (maybe_time(cells.maybe("send_at")?.as_deref(), clock)) ". " (verdict.second)
            },
            _ => verdict.second,
        };
        let age = cells.seconds("age")?.map(span);
        let has_ended = cells.maybe("ended_at")?.is_some();
        let second = html! {
            (second)
            @if let (Some(age), true) = (age, has_ended) { " That was " (age) " ago." }
        };
        // As it should be, or for a reason that may need a person.
        let class = match (verdict.class, self.wait.reason.as_str()) {
            ("waits", reason) if reason != "not due yet" => "warning",
            (class, _) => class,
        };
        Ok(Verdict {
            class,
            second,
            ..verdict
        })
    }

    /// What the provider reported of this recipient.
    fn reported(&self, what: &Markup, clock: &Clock) -> Result<Option<Verdict>, Failure> {
        let cells = &self.cells;
        let Some(kind) = reported::of(&cells.text("event")?) else {
            return Ok(None);
        };
        let reason = [cells.text("event_status")?, cells.text("event_reason")?].join(" ");
        let reason = reason.trim();
        let at = cells.maybe("event_at")?;
        Ok(Some(Verdict {
            class: kind.class,
            first: html! { (what) " " (kind.did) " at " (maybe_time(at.as_deref(), clock)) "." },
            second: html! { (kind.means) @if !reason.is_empty() { " (" bdi { (reason) } ")" } },
        }))
    }

    fn suppressed(
        &self,
        view: &View<'_>,
        address: &str,
        reason: &str,
        clock: &Clock,
    ) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let list = cells.text("suppressed_on")?;
        let until = cells.maybe("suppressed_until")?;
        let why = match reason {
            "bounced" => "its server refused mail for good",
            "complained" => "the recipient called mail spam; links of the account still go out",
            "unsubscribed" => "the recipient unsubscribed",
            _ => "a person or a program decided it",
        };
        Ok(html! {
            div class="verdict bad" {
                p {
                    @if list.is_empty() { "Mail to " bdi { (address) } " is suppressed" }
                    @else { "Mail of the list “" bdi { (list) } "” to " bdi { (address) } " is suppressed" }
                    " since " (maybe_time(cells.maybe("suppressed_since")?.as_deref(), clock)) ": " (why) "."
                }
                p {
                    @if until.is_some() { "It ends at " (maybe_time(until.as_deref(), clock)) "." }
                    @else { "It ends when a person lifts it." }
                }
                @if view.rights.sees_suppressions {
                    div class="acts" {
                        a class="button small" href=(view.path(&format!("suppressions{}", query(&[("q", address)])))) {
                            "Suppressions"
                        }
                    }
                }
            }
        })
    }

    fn account(&self, view: &View<'_>, address: &str, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let (status, login) = (cells.text("account_status")?, cells.text("account_login")?);
        let title = if login.is_empty() { address } else { &login };
        let class = match status.as_str() {
            "active" => "state active",
            "suspended" => "state suppressed",
            _ => "state waits",
        };
        let has_links = !cells.list("open_links")?.is_empty();
        Ok(html! {
            section class="panel" aria-label="Account" {
                header { h2 class="any" { "Account " bdi { (title) } } span class=(class) { (status) } }
                div class="body" {
                    dl class="facts" { (self.facts(clock)?) }
                    div class="acts" {
                        @if let (Some(action), true) = (link_for(&status), view.rights.may_request) {
                            (view.button("links/request", "", "Send a new link", &[("action", action), ("address", address)]))
                        }
                        @if view.rights.may_revoke && has_links {
                            (end_links(view, "End all links", cells.number("account_id")?))
                        }
                    }
                }
            }
        })
    }

    fn facts(&self, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let (links, until) = (cells.list("open_links")?, cells.list("open_links_until")?);
        let times = [
            ("Since", cells.maybe("account_created_at")?),
            ("Activated", cells.maybe("account_activated_at")?),
            ("Suspended", cells.maybe("account_suspended_at")?),
        ];
        Ok(html! {
            @for (name, at) in &times {
                @if at.is_some() { dt { (name) } dd { (maybe_time(at.as_deref(), clock)) } }
            }
            dt { "Open links" }
            dd {
                @if links.is_empty() { "none" }
                @for (link, until) in links.iter().zip(&until) {
                    div { (link.replace('_', " ")) ", not used, until " (maybe_time(Some(until), clock)) }
                }
            }
        })
    }
}

/// The message that the sentence is about: what is being sent, or ended last; of nothing but mail that waits, the newest.
fn last(rows: &[Row]) -> Option<&Row> {
    let ended = rows.iter().filter(|row| row.state != "scheduled");
    ended
        .max_by_key(|row| (row.state == "claimed", row.at.clone(), row.id))
        .or(rows.first())
}

impl Next {
    /// What waits but for the message with this id.
    fn find(rows: &[Row], but: Option<i64>) -> Option<Self> {
        let waiting: Vec<&Row> = rows
            .iter()
            .filter(|row| row.state == "scheduled" && Some(row.id) != but)
            .collect();
        let first = waiting.iter().min_by_key(|row| row.at.clone())?;
        Some(Self {
            waiting: waiting.len(),
            what: title(first),
            at: first.at.clone(),
        })
    }

    fn shown(&self, clock: &Clock) -> Markup {
        let at = maybe_time(self.at.as_deref(), clock);
        let count = number(i64::try_from(self.waiting).unwrap_or(i64::MAX));
        html! {
            @if self.waiting == 1 { "Another message waits: “" }
            @else { (count) " other messages wait. The first of them is “" }
            bdi { (self.what) } "”, due at " (at) "."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, state: &str, at: &str) -> Row {
        Row {
            id,
            state: state.to_owned(),
            kind: String::new(),
            transport: String::new(),
            subject: Some(format!("Mail {id}")),
            recipients: Vec::new(),
            cc: Vec::new(),
            bcc: Vec::new(),
            at: Some(at.to_owned()),
            failed_attempts: 0,
            why: String::new(),
            reported: None,
        }
    }

    #[test]
    fn the_last_message_is_not_one_that_waits() {
        let rows = [
            row(9, "scheduled", "2027-01-02"),
            row(8, "scheduled", "2027-01-01"),
            row(7, "sent", "2026-11-28"),
            row(6, "sent", "2026-11-29"),
        ];
        let of = |rows: &[Row]| last(rows).map(|row| row.id);
        assert_eq!(of(&rows), Some(6));
        let next = Next::find(&rows, of(&rows)).map(|next| (next.waiting, next.what));
        assert_eq!(next, Some((2, "Mail 8".to_owned())));
        assert_eq!(of(&rows[..2]), Some(9));
        let next = Next::find(&rows[..2], Some(9)).map(|next| next.waiting);
        assert_eq!(next, Some(1));
        let sending = [
            row(9, "sent", "2026-11-29"),
            row(8, "claimed", "2026-11-01"),
        ];
        assert_eq!(of(&sending), Some(8));
        assert!(last(&[]).is_none() && Next::find(&[], None).is_none());
    }
}
