//! "Did she get it?": one sentence about the last message to an address, and what is known of the address.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::rows::Row;
use crate::serve::cells::Cells;
use crate::serve::connection::{Clock, Failure, Statements};
use crate::serve::layout::View;
use crate::serve::words::{maybe_time, span};

/// What is known.
pub struct Answer {
    typed: String,
    cells: Cells,
    /// Why the last message waits.
    why: String,
}

/// A sentence, and how good it is: a class of the style sheet.
struct Verdict {
    class: &'static str,
    first: Markup,
    second: Markup,
}

impl Answer {
    /// Finds it for the address that was typed, and its last message.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn find(
        statements: &Statements<'_>,
        typed: &str,
        last: Option<&Row>,
    ) -> Result<Self, Failure> {
        let statement = include_str!("../../../sql/page/answer.sql");
        let id = last.map(|row| row.id);
        let parameters = [(&typed as _, Type::TEXT), (&id as _, Type::INT8)];
        Ok(Self {
            typed: typed.to_owned(),
            cells: statements.one(statement, &parameters).await?,
            why: last.map(|row| row.why.clone()).unwrap_or_default(),
        })
    }

    /// As it is shown.
    pub fn shown(&self, view: &View<'_>, clock: &Clock) -> Markup {
        // A column that cannot be read is a fault of the statement, which tests find.
        self.parts(view, clock).unwrap_or_else(|_| html! {})
    }

    fn parts(&self, view: &View<'_>, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let Some(address) = cells.maybe("address")? else {
            return Ok(html! {
                div class="verdict" {
                    p { "“" (self.typed) "” is not an address." }
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
                    p { (verdict.second) }
                }
            }
            @if cells.maybe_number("account_id")?.is_some() { (self.account(view, &address, clock)?) }
        })
    }

    fn verdict(&self, address: &str, clock: &Clock) -> Result<Verdict, Failure> {
        let cells = &self.cells;
        let subject = cells.text("subject")?;
        let kind = cells.text("kind")?;
        let what = html! {
            "The last message to " (address)
            @if !subject.is_empty() { ", “" (subject) "”," }
            @else if !kind.is_empty() { ", of kind " (kind) "," }
        };
        let at = |name: &str| -> Result<Markup, Failure> {
            Ok(maybe_time(cells.maybe(name)?.as_deref(), clock))
        };
        if cells.maybe("link_used_at")?.is_some() {
            return Ok(Verdict {
                class: "good",
                first: html! { (what) " arrived: its link was used at " (at("link_used_at")?) "." },
                second: html! { "Only the reader of the mail has the link." },
            });
        }
        if let Some(event) = cells.maybe("event")? {
            let reason = [cells.text("event_status")?, cells.text("event_reason")?].join(" ");
            let reason = reason.trim();
            let verdict = of_event(&event, reason);
            if let Some((class, did, second)) = verdict {
                return Ok(Verdict {
                    class,
                    first: html! { (what) " " (did) " at " (at("event_at")?) "." },
                    second: html! { (second) @if !reason.is_empty() { " (" (reason) ")" } },
                });
            }
        }
        let transport = cells.text("transport")?;
        let by = if transport.is_empty() {
            "a client of the database"
        } else {
            &transport
        };
        let last_error = cells.text("last_error")?;
        let age = cells
            .seconds("age")?
            .map(|age| format!(" ({} ago)", span(age)));
        let age = age.unwrap_or_default();
        Ok(match cells.text("state")?.as_str() {
            "sent" => Verdict {
                class: "",
                first: html! { (what) " was accepted by " (by) " at " (at("ended_at")?) (age) "." },
                second: match cells.flag("has_events")? {
                    true => {
                        html! { "What the recipient's server did with it has not been reported yet." }
                    }
                    false => html! {
                        "Whether the recipient's server took it is not known: no events have come from "
                        (by) "."
                    },
                },
            },
            "scheduled" => Verdict {
                // As it should be, or for a reason that may need a person.
                class: if self.why == "not due yet" {
                    "waits"
                } else {
                    "warning"
                },
                first: html! { (what) " waits: " (self.why) "." },
                second: html! { "It is due at " (at("send_at")?) "." @if !last_error.is_empty() { " Last error: " (last_error) } },
            },
            "claimed" => Verdict {
                class: "",
                first: html! { (what) " is being sent since " (at("claimed_at")?) "." },
                second: html! {},
            },
            "error" => Verdict {
                class: "bad",
                first: html! { (what) " failed at " (at("ended_at")?) (age) ": " (last_error) },
                second: html! { "It will not be tried again by itself." },
            },
            other => Verdict {
                class: "warning",
                first: html! { (what) " was not sent: it is " (other) " since " (at("ended_at")?) (age) "." },
                second: html! { (last_error) },
            },
        })
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
                    @if list.is_empty() { "Mail to " (address) " is suppressed" }
                    @else { "Mail of the list “" (list) "” to " (address) " is suppressed" }
                    " since " (maybe_time(cells.maybe("suppressed_since")?.as_deref(), clock)) ": " (why) "."
                }
                p {
                    @if until.is_some() { "It ends at " (maybe_time(until.as_deref(), clock)) "." }
                    @else { "It ends when a person lifts it." }
                }
                @if view.rights.sees_suppressions {
                    div class="acts" {
                        a class="button small" href=(view.path(&format!("suppressions{}", crate::serve::form::query(&[("q", address)])))) {
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
        let links = cells.list("open_links")?;
        let until = cells.list("open_links_until")?;
        let account = cells.number("account_id")?.to_string();
        let action = match status.as_str() {
            "provisioned" => Some("activation"),
            "active" => Some("password_recovery"),
            _ => None,
        };
        let class = match status.as_str() {
            "active" => "state active",
            "suspended" => "state suppressed",
            _ => "state waits",
        };
        Ok(html! {
            section class="panel" aria-label="Account" {
                header { h2 class="any" { "Account " (title) } span class=(class) { (status) } }
                div class="body" {
                    dl class="facts" {
                        dt { "Since" } dd { (maybe_time(cells.maybe("account_created_at")?.as_deref(), clock)) }
                        @if cells.maybe("account_activated_at")?.is_some() {
                            dt { "Activated" } dd { (maybe_time(cells.maybe("account_activated_at")?.as_deref(), clock)) }
                        }
                        @if cells.maybe("account_suspended_at")?.is_some() {
                            dt { "Suspended" } dd { (maybe_time(cells.maybe("account_suspended_at")?.as_deref(), clock)) }
                        }
                        dt { "Open links" }
                        dd {
                            @if links.is_empty() { "none" }
                            @for (link, until) in links.iter().zip(&until) {
                                div { (link.replace('_', " ")) ", not used, until " (maybe_time(Some(until), clock)) }
                            }
                        }
                    }
                    div class="acts" {
                        @if let (Some(action), true) = (action, view.rights.may_request) {
                            (view.button("links/request", "", "Send a new link", &[("action", action), ("address", address)]))
                        }
                        @if view.rights.may_revoke && !links.is_empty() {
                            (view.button("links/end", "harm", "End all links", &[("account", &account)]))
                        }
                    }
                }
            }
        })
    }
}

/// How good an event is, what the message did, and what that means.
fn of_event(event: &str, reason: &str) -> Option<(&'static str, &'static str, &'static str)> {
    Some(match event {
        "delivered" => ("good", "was delivered", "The recipient's server took it."),
        "bounced" => ("bad", "bounced", "The recipient's server refused it."),
        "complained" => (
            "warning",
            "was delivered, and the recipient called it spam",
            "Further mail is suppressed, but for links of the account.",
        ),
        "unsubscribed" => (
            "good",
            "was delivered, and the recipient unsubscribed",
            "Further mail of the list is suppressed.",
        ),
        "deferred" => (
            "warning",
            "was put off by the recipient's server",
            "The provider tries again.",
        ),
        "rejected" => (
            "bad",
            "was refused for this address",
            "It was not sent to it.",
        ),
        "failed" => (
            "bad",
            "could not be processed by the provider",
            "It was not sent.",
        ),
        "suppressed" if reason.is_empty() => {
            ("bad", "was not sent to this address", "It is suppressed.")
        }
        "suppressed" => ("bad", "was not sent to this address", "It is suppressed:"),
        _ => return None,
    })
}
