//! One message.

mod verdict;

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Shown, history, preview};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::Form;
use crate::serve::layout::{Page, Section, View};
use crate::serve::words::{copyable, maybe_time, number, size, span};

/// What is shown of a message.
struct Message {
    id: i64,
    cells: Cells,
    state: String,
    has_link: bool,
    history: Vec<Cells>,
    /// Why it waits, and until when.
    waits: Option<Cells>,
    attachments: Vec<Cells>,
}

/// A message.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>, id: i64, form: &Form) -> Result<Shown, Failure> {
    let read = view.session.run(Access::Read, async |statements| {
        let message = find(view, statements, id).await?;
        if message.is_some() {
            return Ok((message, None));
        }
        let statement = include_str!("../../../sql/page/retention.sql");
        Ok((None, Some(statements.one(statement, &[]).await?)))
    });
    let (message, clock) = match read.await? {
        ((Some(message), _), clock) => (message, clock),
        ((None, kept), clock) => return missing(id, kept.as_ref(), clock),
    };
    let contents = match view.rights.sees_contents {
        true => Some(
            preview::message(
                view,
                id,
                &message.cells.text("kind")?,
                message.has_link,
                form,
            )
            .await?,
        ),
        false => None,
    };
    let title = message.title()?;
    let main = message.main(view, &clock, contents)?;
    Ok(Shown::Page(
        Page::new(title, Section::Messages, main),
        clock,
    ))
}

async fn find(
    view: &View<'_>,
    statements: &Statements<'_>,
    id: i64,
) -> Result<Option<Message>, Failure> {
    let by_id = [(&id as _, Type::INT8)];
    let statement = match view.rights.sees_addresses {
        true => include_str!("../../../sql/page/message.sql"),
        false => include_str!("../../../sql/page/message_monitor.sql"),
    };
    let Some(cells) = statements.maybe(statement, &by_id).await? else {
        return Ok(None);
    };
    let state = cells.text("state")?;
    let history = include_str!("../../../sql/page/history.sql");
    let history = statements.all(history, &by_id).await?;
    let waits = match state.as_str() {
        "scheduled" => {
            let ids = vec![id];
            let statement = include_str!("../../../sql/page/waits.sql");
            statements
                .maybe(statement, &[(&ids, Type::INT8_ARRAY)])
                .await?
        }
        _ => None,
    };
    let attachments = match view.rights.sees_addresses {
        true => {
            let statement = include_str!("../../../sql/page/attachments.sql");
            statements.all(statement, &by_id).await?
        }
        false => Vec::new(),
    };
    Ok(Some(Message {
        id,
        has_link: cells.flag("has_link")?,
        cells,
        state,
        history,
        waits,
        attachments,
    }))
}

/// The page for an id that no message has, or has any more.
fn missing(id: i64, kept: Option<&Cells>, clock: Clock) -> Result<Shown, Failure> {
    let lowest = kept
        .map(|kept| kept.maybe_number("lowest_id"))
        .transpose()?
        .flatten();
    let retention = kept
        .map(|kept| kept.seconds("retention"))
        .transpose()?
        .flatten();
    let retention = retention.map_or_else(|| "a while".to_owned(), span);
    let was_purged = lowest.is_some_and(|lowest| id < lowest);
    let main = html! {
        div class="verdict" {
            h1 { "There is no message " (number(id)) }
            @if was_purged {
                p {
                    "It has been deleted: mail that ended is kept for " (retention) " (mailroom.retention), and the lowest id that is left is "
                    (number(lowest.unwrap_or_default())) "."
                }
            } @else {
                p { "Mail that ended is kept for " (retention) " (mailroom.retention); ids of transactions that were rolled back are not used again." }
            }
        }
    };
    let page = Page::new(format!("No message {id}"), Section::Messages, main);
    Ok(Shown::NotFound(page, clock))
}

impl Message {
    fn title(&self) -> Result<String, Failure> {
        let subject = match self.recipients()?.is_empty() {
            true => String::new(),
            false => self.cells.text("subject")?,
        };
        Ok(match subject.is_empty() {
            true => format!("Message {}", self.id),
            false => subject,
        })
    }

    fn recipients(&self) -> Result<Vec<String>, Failure> {
        // A monitor sees none.
        self.cells.list("recipients").or_else(|_| Ok(Vec::new()))
    }

    fn main(
        &self,
        view: &View<'_>,
        clock: &Clock,
        contents: Option<Markup>,
    ) -> Result<Markup, Failure> {
        let recipients = self.recipients()?;
        Ok(html! {
            div class="head" {
                div {
                    h1 class="any" { (self.title()?) }
                    @if !recipients.is_empty() {
                        p { "Message " (self.id) " to " span class="any" { (some_of(&recipients)) } }
                    }
                }
            }
            (self.verdict(clock)?)
            (self.acts(view, clock, &recipients)?)
            div class=(if contents.is_some() { "two" } else { "stack" }) {
                div class="stack" {
                    (self.happened(clock)?)
                    (self.details(clock, &recipients)?)
                    @if !self.attachments.is_empty() { (self.attached()?) }
                }
                @if let Some(contents) = contents { (contents) }
            }
        })
    }

    /// A time of the link; a monitor sees none.
    fn link(&self, name: &str) -> Result<Option<String>, Failure> {
        self.cells.maybe(name).or(Ok(None))
    }

    fn acts(
        &self,
        view: &View<'_>,
        clock: &Clock,
        recipients: &[String],
    ) -> Result<Markup, Failure> {
        let rights = view.rights;
        let to = |act: &str| format!("messages/{}/{act}", self.id);
        let (is_waiting, has_ended) = match self.state.as_str() {
            "scheduled" => (true, false),
            "claimed" => (false, false),
            _ => (false, true),
        };
        let may_retry = match self.has_link {
            true => rights.may_retry_links,
            false => rights.may_retry,
        };
        let action = self.link("link_action")?;
        let account = self
            .cells
            .maybe_number("account_id")?
            .map(|id| id.to_string());
        Ok(html! {
            div class="acts" id="acts" data-live {
                @if self.state == "error" && may_retry { (view.button(&to("retry"), "main", "Retry", &[])) }
                @if has_ended && !self.has_link && rights.may_send_again {
                    (view.button(&to("send-again"), "", "Send again", &[]))
                }
                @if is_waiting && !self.has_link && rights.may_reschedule {
                    details {
                        summary { "Reschedule" }
                        (view.form(&to("reschedule"), &[], &html! {
                            div class="field" {
                                label for="f-send-at" { "Send at (" (clock.zone) ")" }
                                input id="f-send-at" type="datetime-local" name="send_at" required;
                            }
                            button class="main" { "Reschedule" }
                        }))
                    }
                }
                @if is_waiting && !self.has_link && rights.may_cancel {
                    (view.button(&to("cancel"), "harm", "Cancel", &[]))
                }
                @if let (true, Some(action), Some(address)) = (self.has_link && rights.may_request, &action, recipients.first()) {
                    (view.button("links/request", "", "Send a new link", &[("action", action), ("address", address)]))
                }
                @if let (true, Some(account)) = (self.has_link && rights.may_revoke, &account) {
                    (view.button("links/end", "harm", "End all links of the account", &[("account", account)]))
                }
            }
        })
    }

    fn happened(&self, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let by = cells.maybe("enqueued_by").or(Ok::<_, Failure>(None))?;
        let scheduled = html! { "Scheduled" @if let Some(by) = by { " by " strong { (by) } } };
        Ok(html! {
            section class="panel" id="history" data-live {
                header { h2 { "What happened" } }
                div class="body" {
                    (history::timeline((cells.maybe("created_at")?, scheduled), &self.history, self.link("link_used_at")?, clock)?)
                }
            }
        })
    }

    fn details(&self, clock: &Clock, recipients: &[String]) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let text = |name: &str| cells.maybe(name).or(Ok::<_, Failure>(None));
        let list = |name: &str| cells.list(name).or_else(|_| Ok::<_, Failure>(Vec::new()));
        let keys = [
            ("Item key", "item_key"),
            ("Group key", "group_key"),
            ("Provider ID", "provider_id"),
        ];
        let bytes = cells
            .maybe_number("attachment_bytes")
            .or(Ok::<_, Failure>(None))?;
        let fallback = text("fallback_from")?.filter(|from| !from.is_empty());
        Ok(html! {
            section class="panel" {
                header { h2 { "Details" } }
                div class="body" {
                    dl class="facts" {
                        @if !recipients.is_empty() { dt { "To" } dd { span class="any" { (recipients.join(", ")) } } }
                        @for (label, name) in [("Cc", "cc"), ("Bcc", "bcc"), ("Reply to", "reply_to")] {
                            @let all = list(name)?;
                            @if !all.is_empty() { dt { (label) } dd { span class="any" { (all.join(", ")) } } }
                        }
                        dt { "Kind" } dd { (dash(cells.maybe("kind")?)) }
                        dt { "Transport" }
                        dd {
                            (dash(cells.maybe("transport")?))
                            @if let Some(from) = fallback { " (instead of " (from) ")" }
                        }
                        dt { "Priority" } dd { (cells.number("priority")?) }
                        dt { "Due" } dd { (maybe_time(cells.maybe("send_at")?.as_deref(), clock)) }
                        dt { "Expires" } dd { (maybe_time(cells.maybe("expires_at")?.as_deref(), clock)) }
                        dt { "Attempts" }
                        dd {
                            (number(cells.number("failed_attempts")?)) " failed of at most " (number(cells.number("max_attempts")?))
                            @if cells.number("ambiguous_attempts")? > 0 {
                                ", " (number(cells.number("ambiguous_attempts")?)) " may have arrived"
                            }
                        }
                        dt { "Message ID" } dd { (copyable(&cells.text("message_id")?, "message ID")) }
                        @for (label, name) in keys {
                            @if let Some(value) = text(name)? { dt { (label) } dd { (copyable(&value, label)) } }
                        }
                        @if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
                            dt { "Attachments" } dd { (size(bytes)) }
                        }
                    }
                }
            }
        })
    }

    fn attached(&self) -> Result<Markup, Failure> {
        Ok(html! {
            section class="panel" {
                header { h2 { "Attachments" } }
                table {
                    thead { tr { th scope="col" { "File" } th scope="col" { "Type" } th scope="col" class="num" { "Size" } } }
                    tbody {
                        @for row in &self.attachments {
                            tr {
                                th scope="row" class="any" { (row.text("filename")?) }
                                td { (row.text("content_type")?) }
                                td class="num" { (size(row.number("size")?)) }
                            }
                        }
                    }
                }
            }
        })
    }
}

/// The first of many recipients, and how many more there are.
fn some_of(recipients: &[String]) -> String {
    match recipients {
        [first, second, third, more @ ..] if !more.is_empty() => {
            format!("{first}, {second}, {third} and {} more", more.len())
        }
        all => all.join(", "),
    }
}

fn dash(value: Option<String>) -> String {
    value
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| "–".to_owned())
}
