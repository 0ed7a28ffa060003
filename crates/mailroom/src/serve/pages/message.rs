//! One message.
//!
//! | module | owns |
//! |---|---|
//! | `verdict` | what became of it, as far as mailroom knows by itself |
//! | `reported` | what became of it, as providers reported it |
//! | `buttons` | what can be done with it |
//! | `details` | what is known of it |

pub mod buttons;
mod details;
pub mod reported;
pub mod verdict;

use maud::{Markup, html};
use tokio_postgres::types::Type;

use self::verdict::{Verdict, Wait, of_state, of_used_link};
use super::{Shown, preview};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::Form;
use crate::serve::layout::{Page, Section, View};
use crate::serve::words::{number, some_of, span};

/// What is shown of a message.
struct Message {
    id: i64,
    cells: Cells,
    state: String,
    has_link: bool,
    history: Vec<Cells>,
    wait: Wait,
    /// Whether the role sees addresses; of one that does not, the columns with them are missing.
    sees_addresses: bool,
    events: Vec<Cells>,
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
    let wait = match state.as_str() {
        "scheduled" => find_wait(statements, id).await?,
        _ => Wait::default(),
    };
    let (events, attachments) = match view.rights.sees_addresses {
        true => {
            let events = include_str!("../../../sql/page/events.sql");
            let attachments = include_str!("../../../sql/page/attachments.sql");
            (
                statements.all(events, &by_id).await?,
                statements.all(attachments, &by_id).await?,
            )
        }
        false => (Vec::new(), Vec::new()),
    };
    Ok(Some(Message {
        id,
        has_link: cells.flag("has_link")?,
        cells,
        state,
        history,
        wait,
        sees_addresses: view.rights.sees_addresses,
        events,
        attachments,
    }))
}

async fn find_wait(statements: &Statements<'_>, id: i64) -> Result<Wait, Failure> {
    let statement = include_str!("../../../sql/page/waits.sql");
    let ids = vec![id];
    let row = statements
        .maybe(statement, &[(&ids, Type::INT8_ARRAY)])
        .await?;
    Ok(match row {
        Some(row) => Wait {
            reason: row.text("reason")?,
            until: row.maybe("until")?,
        },
        None => Wait::default(),
    })
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
    let mut page = Page::new(format!("No message {id}"), Section::Messages, main);
    // There is nothing to come.
    page.refresh = 0;
    Ok(Shown::NotFound(page, clock))
}

impl Message {
    fn title(&self) -> Result<String, Failure> {
        Ok(match self.maybe("subject")? {
            Some(subject) if !subject.is_empty() => subject,
            _ => format!("Message {}", self.id),
        })
    }

    /// Text of a column that only those have who see addresses.
    fn maybe(&self, name: &str) -> Result<Option<String>, Failure> {
        match self.sees_addresses {
            true => self.cells.maybe(name),
            false => Ok(None),
        }
    }

    /// Texts of such a column.
    fn list(&self, name: &str) -> Result<Vec<String>, Failure> {
        match self.sees_addresses {
            true => self.cells.list(name),
            false => Ok(Vec::new()),
        }
    }

    fn main(
        &self,
        view: &View<'_>,
        clock: &Clock,
        contents: Option<Markup>,
    ) -> Result<Markup, Failure> {
        let recipients = self.list("recipients")?;
        let verdict = self.verdict(clock)?;
        Ok(html! {
            div class="head" {
                div {
                    h1 class="any" { bdi { (self.title()?) } }
                    @if !recipients.is_empty() {
                        p { "Message " (self.id) " to " span class="any" { (some_of(&recipients, 0)) } }
                    }
                }
            }
            div class={ "verdict " (verdict.class) } id="verdict" data-live {
                p { (verdict.first) }
                @if !verdict.second.0.is_empty() { p { (verdict.second) } }
            }
            (self.buttons(view, clock)?)
            div class=(if contents.is_some() { "two" } else { "stack" }) {
                div class="stack" {
                    (self.happened(clock)?)
                    (self.reports(clock)?)
                    (self.details(clock)?)
                    (self.attached()?)
                }
                @if let Some(contents) = contents { (contents) }
            }
        })
    }

    /// What became of it.
    fn verdict(&self, clock: &Clock) -> Result<Verdict, Failure> {
        let what = html! { "This message" };
        let verdict = of_state(&what, &self.cells, &self.wait, clock)?;
        if self.state != "sent" {
            return Ok(verdict);
        }
        if let Some(used) = self.maybe("link_used_at")? {
            return Ok(of_used_link(&what, &used, clock));
        }
        Ok(match self.reported()? {
            Some((class, sentence)) => Verdict {
                class,
                first: html! { (sentence) },
                second: verdict.first,
            },
            None => Verdict {
                second: html! { "What the recipient's server did with it has not been reported." },
                ..verdict
            },
        })
    }

    /// What providers reported of it: its class, and a sentence.
    fn reported(&self) -> Result<Option<(&'static str, String)>, Failure> {
        if !self.sees_addresses {
            let outcomes: Result<Vec<String>, Failure> = self
                .history
                .iter()
                .filter(|row| matches!(row.maybe_number("attempt"), Ok(None)))
                .map(|row| row.text("outcome"))
                .collect();
            let worst = reported::worst(outcomes?.iter().map(String::as_str));
            return Ok(worst.map(reported::Kind::of_any));
        }
        let mut events = Vec::with_capacity(self.events.len());
        for event in &self.events {
            events.push((event.maybe("recipient")?, event.text("type")?));
        }
        let mut recipients = 0;
        for name in ["recipients", "cc", "bcc"] {
            recipients += self.list(name)?.len();
        }
        Ok(reported::of_mail(&events, recipients))
    }
}
