//! The rows of the list of messages.

use maud::{Markup, html};

use super::message::reported::Kind;
use crate::serve::cells::Cells;
use crate::serve::connection::{Clock, Failure};
use crate::serve::layout::View;
use crate::serve::words::{breakable, maybe_time, number, some_of, state};

/// A row of the list.
pub struct Row {
    pub id: i64,
    pub state: String,
    pub kind: String,
    pub transport: String,
    pub subject: Option<String>,
    pub recipients: Vec<String>,
    pub cc: Vec<String>,
    pub bcc: Vec<String>,
    /// When it ended, is due, or was scheduled.
    pub at: Option<String>,
    pub failed_attempts: i64,
    /// Why it waits, or failed.
    pub why: String,
    /// What was reported of it since it was sent.
    pub reported: Option<&'static Kind>,
}

impl Row {
    /// Reads a row; of a role that sees no addresses, without them.
    ///
    /// # Errors
    /// A column cannot be read.
    pub fn read(cells: &Cells, sees_addresses: bool) -> Result<Self, Failure> {
        let list = |name: &str| match sees_addresses {
            true => cells.list(name),
            false => Ok(Vec::new()),
        };
        let subject = match sees_addresses {
            true => cells.maybe("subject")?,
            false => None,
        };
        let state = cells.text("state")?;
        let at = match state.as_str() {
            "scheduled" => cells.maybe("send_at")?,
            "claimed" => cells.maybe("created_at")?,
            _ => cells.maybe("ended_at")?,
        };
        let why = match state.as_str() {
            "sent" => String::new(),
            _ => cells.text("last_error")?,
        };
        Ok(Self {
            id: cells.number("id")?,
            kind: cells.text("kind")?,
            transport: cells.text("transport")?,
            failed_attempts: cells.number("failed_attempts")?,
            state,
            subject,
            recipients: list("recipients")?,
            cc: list("cc")?,
            bcc: list("bcc")?,
            at,
            why,
            reported: None,
        })
    }

    /// The number of its recipients; of a role that sees no addresses, zero.
    pub fn addresses(&self) -> usize {
        self.recipients.len() + self.cc.len() + self.bcc.len()
    }
}

/// The table.
pub fn table(view: &View<'_>, rows: &[Row], clock: &Clock) -> Markup {
    html! {
        table class="cards" {
            thead {
                tr {
                    th scope="col" { "Message" }
                    th scope="col" { "State" }
                    th scope="col" { "When" }
                    th scope="col" { "Kind" }
                    th scope="col" { "Transport" }
                    th scope="col" class="num" { "Failed attempts" }
                }
            }
            tbody id="rows" data-live {
                @for row in rows {
                    tr {
                        th scope="row" class="what" {
                            a data-row href=(view.path(&format!("messages/{}", row.id))) { bdi { (title(row)) } }
                            @if !row.recipients.is_empty() { small { (some_of(&row.recipients, row.cc.len() + row.bcc.len())) } }
                        }
                        td class="first" { (shown_state(row)) }
                        td class="side nowrap" { (maybe_time(row.at.as_deref(), clock)) }
                        td class="meta" { (breakable(&row.kind)) }
                        td class="meta" { bdi { (row.transport) } }
                        td class="meta num" {
                            @if row.failed_attempts > 0 {
                                (number(row.failed_attempts)) span class="unit" { " failed" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Its state, or what was reported since: that it was delivered, if it has one recipient.
fn shown_state(row: &Row) -> Markup {
    let is_one = row.addresses() == 1;
    match row.reported {
        Some(kind) if kind.class != "good" || is_one => html! {
            span class={ "state " (kind.class) } { (kind.counted) }
            @if !is_one { span class="why" { "reported of a recipient" } }
        },
        _ => state(&row.state, &row.why),
    }
}

/// What a message is called: its subject, if it is known.
pub fn title(row: &Row) -> String {
    match &row.subject {
        Some(subject) if !subject.is_empty() => subject.clone(),
        _ if row.kind.is_empty() => format!("Message {}", row.id),
        _ => format!("Message {} ({})", row.id, row.kind),
    }
}
