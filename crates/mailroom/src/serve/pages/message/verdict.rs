//! What became of a mail, in a sentence: of a message on its page, and of the last one to an address.

use maud::{Markup, html};

use crate::serve::cells::Cells;
use crate::serve::connection::{Clock, Failure};
use crate::serve::words::{deliverer, maybe_time};

/// A sentence, another one, and how good it is: a class of the style sheet.
pub struct Verdict {
    pub class: &'static str,
    pub first: Markup,
    pub second: Markup,
}

/// Why a mail waits, and until when.
#[derive(Default)]
pub struct Wait {
    pub reason: String,
    pub until: Option<String>,
}

impl Wait {
    fn shown(&self, clock: &Clock) -> Markup {
        // What is paused need not go on when it is probed.
        let when = match self.reason.contains("transport is") {
            true => "the next probe is at",
            false => "until",
        };
        html! {
            (self.reason)
            @if self.until.is_some() { ", " (when) " " (maybe_time(self.until.as_deref(), clock)) }
        }
    }
}

/// Of the state of a mail, whose name is `what`, as far as mailroom knows by itself.
pub fn of_state(
    what: &Markup,
    cells: &Cells,
    wait: &Wait,
    clock: &Clock,
) -> Result<Verdict, Failure> {
    let at = |name: &str| -> Result<Markup, Failure> {
        Ok(maybe_time(cells.maybe(name)?.as_deref(), clock))
    };
    let error = cells.text("last_error")?;
    let state = cells.text("state")?;
    let (class, first, second) = match state.as_str() {
        "sent" => (
            "",
            html! { (what) " was accepted by " (by(cells)?) " at " (at("ended_at")?) "." },
            html! {},
        ),
        "claimed" => (
            "sending",
            html! { (what) " is being sent by " (deliverer(&cells.text("claimed_by")?)) " since " (at("claimed_at")?) "." },
            html! { "If it is not settled by the end of its lease, it is tried again." },
        ),
        "error" => (
            "failed bad",
            html! { (what) " failed at " (at("ended_at")?) ": " bdi { (error) } },
            html! { "It will not be tried again by itself." },
        ),
        "scheduled" => (
            "waits",
            html! { (what) " waits: " (wait.shown(clock)) "." },
            html! { @if !error.is_empty() { "Last error: " bdi { (error) } } },
        ),
        other => (
            "warning",
            html! { (what) " was not sent: it is " (other) " since " (at("ended_at")?) "." },
            html! { bdi { (error) } },
        ),
    };
    Ok(Verdict {
        class,
        first,
        second,
    })
}

/// Of a mail whose link was used.
pub fn of_used_link(what: &Markup, used: &str, clock: &Clock) -> Verdict {
    Verdict {
        class: "good",
        first: html! { (what) " arrived: its link was used at " (maybe_time(Some(used), clock)) "." },
        second: html! { "Only the reader of the mail has the link." },
    }
}

/// By whom a mail is sent.
pub fn by(cells: &Cells) -> Result<String, Failure> {
    let transport = cells.text("transport")?;
    Ok(match transport.is_empty() {
        true => "a client of the database".to_owned(),
        false => transport,
    })
}
