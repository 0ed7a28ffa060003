//! The buttons of a message.

use maud::{Markup, html};

use super::Message;
use crate::serve::connection::{Clock, Failure};
use crate::serve::layout::View;
use crate::serve::pages::message_acts::link_for;

impl Message {
    pub(super) fn buttons(&self, view: &View<'_>, clock: &Clock) -> Result<Markup, Failure> {
        let rights = view.rights;
        let to = |act: &str| format!("messages/{}/{act}", self.id);
        let is_waiting = self.state == "scheduled";
        let has_ended = !is_waiting && self.state != "claimed";
        Ok(html! {
            div class="acts" id="acts" data-live {
                (self.retry(view)?)
                @if has_ended && !self.has_link && rights.may_send_again {
                    (view.button(&to("send-again"), "", "Send again", &[]))
                }
                @if is_waiting && !self.has_link && rights.may_reschedule {
                    (self.reschedule(view, clock))
                }
                @if is_waiting && !self.has_link && rights.may_cancel {
                    (view.question(&to("cancel"), "Cancel", "It will not be sent, and cannot be taken up again.", &[]))
                }
                @if self.has_link { (self.links(view)?) }
            }
        })
    }

    fn retry(&self, view: &View<'_>) -> Result<Markup, Failure> {
        let may_retry = match self.has_link {
            true => view.rights.may_retry_links,
            false => view.rights.may_retry,
        };
        if !may_retry || !matches!(self.state.as_str(), "error" | "suppressed") {
            return Ok(html! {});
        }
        let to = format!("messages/{}/retry", self.id);
        Ok(match self.cells.number("ambiguous_attempts")? {
            0 => view.button(&to, "main", "Retry", &[]),
            _ => view.question(
                &to,
                "Retry",
                "It may have arrived: the recipient may get it twice.",
                &[],
            ),
        })
    }

    fn reschedule(&self, view: &View<'_>, clock: &Clock) -> Markup {
        let to = format!("messages/{}/reschedule", self.id);
        let fields = html! {
            div class="field" {
                label for="f-send-at" { "Send at (" (clock.zone) ")" }
                input id="f-send-at" type="datetime-local" name="send_at" required;
            }
            button class="main" { "Reschedule" }
        };
        html! { details { summary { "Reschedule" } (view.form(&to, &[], &fields)) } }
    }

    /// A new link for the account, if it may have one, to the address that it has now.
    fn links(&self, view: &View<'_>) -> Result<Markup, Failure> {
        if !view.rights.sees_addresses {
            return Ok(html! {});
        }
        let account = self.cells.maybe_number("account_id")?;
        let address = self.cells.maybe("account_email")?;
        let action = link_for(&self.cells.text("account_status")?);
        Ok(html! {
            @if let (true, Some(action), Some(address)) = (view.rights.may_request, action, &address) {
                (view.button("links/request", "", "Send a new link", &[("action", action), ("address", address)]))
            }
            @if let (true, Some(account)) = (view.rights.may_revoke, account) {
                (end_links(view, "End all links of the account", account))
            }
        })
    }
}

/// The question before all links of an account end.
pub fn end_links(view: &View<'_>, label: &str, account: i64) -> Markup {
    let sentence = "Links that were mailed do not work any more.";
    view.question(
        "links/end",
        label,
        sentence,
        &[("account", &account.to_string())],
    )
}
