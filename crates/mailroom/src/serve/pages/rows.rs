//! The rows of the list of messages.

use maud::{Markup, html};

use crate::serve::cells::Cells;
use crate::serve::connection::{Clock, Failure};
use crate::serve::layout::View;
use crate::serve::words::{breakable, maybe_time, number, state};

/// A row of the list.
pub struct Row {
    pub id: i64,
    pub state: String,
    pub kind: String,
    pub transport: String,
    pub subject: Option<String>,
    pub recipients: Vec<String>,
    pub recipient_count: i64,
    /// When it ended, is due, or was scheduled.
    pub at: Option<String>,
    pub failed_attempts: i64,
    /// Why it waits, or failed.
    pub why: String,
}

impl Row {
    /// Reads a row; of a role that sees no addresses, without them.
    ///
    /// # Errors
    /// A column cannot be read.
    pub fn read(cells: &Cells, sees_addresses: bool) -> Result<Self, Failure> {
        let (subject, recipients, recipient_count) = match sees_addresses {
            true => (
                cells.maybe("subject")?,
                cells.list("recipients")?,
                cells.number("recipient_count")?,
            ),
            false => (None, Vec::new(), 0),
        };
        let state = cells.text("state")?;
        let last_error = cells.text("last_error")?;
        let at = match state.as_str() {
            "scheduled" => cells.maybe("send_at")?,
            "claimed" => cells.maybe("created_at")?,
            _ => cells.maybe("ended_at")?,
        };
        let why = match state.as_str() {
            "sent" => String::new(),
            _ => last_error.clone(),
        };
        Ok(Self {
            id: cells.number("id")?,
            kind: cells.text("kind")?,
            transport: cells.text("transport")?,
            failed_attempts: cells.number("failed_attempts")?,
            state,
            subject,
            recipients,
            recipient_count,
            at,
            why,
        })
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
                            a data-row href=(view.path(&format!("messages/{}", row.id))) { (title(row)) }
                            @if row.recipient_count > 0 { small { (recipients(row)) } }
                        }
                        td class="first" { (state(&row.state, &row.why)) }
                        td class="side nowrap" { (maybe_time(row.at.as_deref(), clock)) }
                        td class="meta" { (breakable(&row.kind)) }
                        td class="meta" { (row.transport) }
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

/// What a message is called: its subject, if it is known.
fn title(row: &Row) -> String {
    match &row.subject {
        Some(subject) if !subject.is_empty() => subject.clone(),
        _ if row.kind.is_empty() => format!("Message {}", row.id),
        _ => format!("Message {} ({})", row.id, row.kind),
    }
}

fn recipients(row: &Row) -> String {
    let more = row.recipient_count - i64::try_from(row.recipients.len()).unwrap_or(0);
    let named = row.recipients.join(", ");
    match more {
        ..=0 => named,
        _ => format!("{named} and {more} more"),
    }
}
