//! What happened to a message.

use maud::{Markup, html};

use crate::serve::cells::Cells;
use crate::serve::connection::{Clock, Failure};
use crate::serve::words::{deliverer, maybe_time, number, span};

/// A step.
struct Step {
    class: &'static str,
    at: Option<String>,
    what: Markup,
    more: String,
}

/// The steps: that it was scheduled at a time, its history, and that its link was used.
///
/// # Errors
/// A column cannot be read.
pub fn timeline(
    scheduled: (Option<String>, Markup),
    rows: &[Cells],
    used: Option<String>,
    clock: &Clock,
) -> Result<Markup, Failure> {
    let mut steps = vec![Step {
        class: "",
        at: scheduled.0,
        what: scheduled.1,
        more: String::new(),
    }];
    for row in rows {
        steps.push(step(row)?);
    }
    if used.is_some() {
        steps.push(Step {
            class: "good",
            at: used,
            what: html! { "The link was used" },
            more: String::new(),
        });
    }
    Ok(html! {
        ol class="timeline" {
            @for step in &steps { (item(step, clock)) }
        }
    })
}

fn item(step: &Step, clock: &Clock) -> Markup {
    html! {
        li class=(step.class) {
            (maybe_time(step.at.as_deref(), clock))
            div { (step.what) @if !step.more.is_empty() { small { bdi { (step.more) } } } }
        }
    }
}

fn step(cells: &Cells) -> Result<Step, Failure> {
    let outcome = cells.text("outcome")?;
    let (claimant, transport) = (cells.text("claimant")?, cells.text("transport")?);
    let attempt = cells.maybe_number("attempt")?;
    let at = match cells.maybe("ended_at")? {
        Some(at) => Some(at),
        None => cells.maybe("started_at")?,
    };
    let code = cells
        .maybe_number("response_code")?
        .map(|code| format!("{code}: "));
    // Servers and providers chose it.
    let error = format!("{}{}", code.unwrap_or_default(), cells.text("error")?);
    let reason = html! { bdi { (error) } };
    let took = cells
        .seconds("duration")?
        .map(|took| format!("in {}", span(took)));
    let provider_id = cells
        .maybe("provider_id")?
        .map(|id| format!("provider id {id}"));
    let more = [took, provider_id]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ");
    let of = html! {
        @if let Some(attempt) = attempt { "Attempt " (number(attempt)) } @else { "An attempt" }
        @if !claimant.is_empty() { " by " (deliverer(&claimant)) }
        @if !transport.is_empty() { " through " strong { (transport) } }
    };
    let (class, what) = match outcome.as_str() {
        "sent" if attempt.is_some() => ("accepted", html! { (of) " was accepted" }),
        "partial" => (
            "warning",
            html! { (of) " was accepted, but not for all recipients: " (reason) },
        ),
        "failed" if attempt.is_some() => ("failed", html! { (of) " failed: " (reason) }),
        "ambiguous" => ("warning", html! { (of) " may have arrived: " (reason) }),
        "lease_expired" => (
            "warning",
            html! { (of) " was not settled in time: " (reason) },
        ),
        "late" => (
            "warning",
            html! { (of) " was settled too late, and may have arrived twice" },
        ),
        "sending" => ("sending", html! { (of) " is under way" }),
        _ => (
            class_of(&outcome),
            html! { (told(&outcome, &claimant, &error)) },
        ),
    };
    Ok(Step {
        class,
        at,
        what,
        more,
    })
}

/// Ends, what providers report, and what people did.
fn told(outcome: &str, by: &str, error: &str) -> Markup {
    let word = match outcome {
        "sent" => "Sent",
        "error" => "Ended as failed",
        "cancelled" => "Cancelled",
        "expired" => "Expired",
        "suppressed" => "Suppressed",
        "accepted" => "The provider reports: accepted",
        "delivered" => "Delivered: the recipient's server took it",
        "deferred" => "Put off by the recipient's server",
        "bounced" => "Bounced: the recipient's server refused it",
        "rejected" => "Refused for a recipient",
        "complained" => "The recipient called it spam",
        "unsubscribed" => "The recipient unsubscribed",
        "failed" => "The provider could not process it",
        "retried" => "Retried",
        "sent_again" => "Sent again",
        "rescheduled" => "Rescheduled",
        "rerouted" => "Rerouted",
        other => other,
    };
    html! {
        (word)
        @if !by.is_empty() { " by " strong { bdi { (by) } } }
        @if !error.is_empty() { ": " bdi { (error) } }
    }
}

fn class_of(outcome: &str) -> &'static str {
    match outcome {
        "sent" | "accepted" => "accepted",
        "delivered" => "delivered",
        "error" | "failed" | "rejected" => "failed",
        "bounced" => "bounced",
        "complained" | "deferred" => "warning",
        "cancelled" => "cancelled",
        "expired" => "expired",
        "suppressed" => "suppressed",
        _ => "",
    }
}
