//! What became of a message, in a sentence.

use maud::{Markup, html};

use super::Message;
use crate::serve::connection::{Clock, Failure};
use crate::serve::words::{deliverer, maybe_time};

impl Message {
    /// What became of it, in a sentence.
    pub(super) fn verdict(&self, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let at = |name: &str| -> Result<Markup, Failure> {
            Ok(maybe_time(cells.maybe(name)?.as_deref(), clock))
        };
        let last_error = cells.text("last_error")?;
        let transport = cells.text("transport")?;
        let by = if transport.is_empty() {
            "a client"
        } else {
            &transport
        };
        let used = self.link("link_used_at")?;
        let reported = self.reported()?;
        let (class, first, second) = match self.state.as_str() {
            "sent" if used.is_some() => (
                "good",
                html! { "Accepted by " (by) " at " (at("ended_at")?) "; its link was used at " (maybe_time(used.as_deref(), clock)) "." },
                "Only the reader of the mail has the link.".to_owned(),
            ),
            "sent" => {
                let accepted = html! { "Accepted by " (by) " at " (at("ended_at")?) };
                let (class, told) = match reported.as_ref().map(|(outcome, _)| outcome.as_str()) {
                    Some("delivered") => ("good", "Delivered: the recipient's server took it"),
                    Some("bounced") => ("bad", "Bounced: the recipient's server refused it"),
                    Some("complained") => ("warning", "Delivered, and called spam"),
                    _ => ("", ""),
                };
                let (first, second) = match reported {
                    // Of others it may not be true.
                    Some((_, at)) if !told.is_empty() && self.is_to_one()? => (
                        html! { (told) " at " (maybe_time(at.as_deref(), clock)) "." },
                        html! { (accepted) "." },
                    ),
                    Some(_) => (
                        html! { (accepted) "." },
                        html! { "See below for what was reported." },
                    ),
                    None => (
                        html! { (accepted) "." },
                        html! { "What the recipient's server did with it has not been reported." },
                    ),
                };
                let class = if self.is_to_one()? { class } else { "" };
                return Ok(verdict(class, &first, &second));
            }
            "claimed" => (
                "sending",
                html! { "Being sent by " (deliverer(&cells.text("claimed_by")?)) " since " (at("claimed_at")?) "." },
                "If it is not settled by the end of its lease, it is tried again.".to_owned(),
            ),
            "error" => (
                "failed bad",
                html! { "Failed at " (at("ended_at")?) ": " (last_error) },
                "It will not be tried again by itself.".to_owned(),
            ),
            "scheduled" => {
                let (reason, until) = match &self.waits {
                    Some(waits) => (waits.text("reason")?, waits.maybe("until")?),
                    None => (String::new(), None),
                };
                let first = html! {
                    "Waits: " (reason)
                    @if until.is_some() { ", until " (maybe_time(until.as_deref(), clock)) } "."
                };
                let second = if last_error.is_empty() {
                    String::new()
                } else {
                    format!("Last error: {last_error}")
                };
                ("waits", first, second)
            }
            other => (
                "warning",
                html! { "Not sent: " (other) " at " (at("ended_at")?) "." },
                last_error,
            ),
        };
        Ok(verdict(class, &first, &html! { (second) }))
    }

    /// Whether one address is all that it went to, as far as the role sees.
    fn is_to_one(&self) -> Result<bool, Failure> {
        let mut addresses = 0;
        for name in ["recipients", "cc", "bcc"] {
            let list = self.cells.list(name).or(Ok::<_, Failure>(Vec::new()))?;
            addresses += list.len();
        }
        Ok(addresses == 1)
    }

    /// The newest event of the provider that says what became of it.
    fn reported(&self) -> Result<Option<(String, Option<String>)>, Failure> {
        let telling = ["delivered", "bounced", "complained", "deferred", "rejected"];
        for row in self.history.iter().rev() {
            let outcome = row.text("outcome")?;
            if telling.contains(&outcome.as_str()) {
                return Ok(Some((outcome, row.maybe("ended_at")?)));
            }
        }
        Ok(None)
    }
}

fn verdict(class: &str, first: &Markup, second: &Markup) -> Markup {
    html! {
        div class={ "verdict " (class) } id="verdict" data-live {
            p { (first) }
            @if !second.0.is_empty() { p { (second) } }
        }
    }
}
