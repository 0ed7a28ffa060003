//! The list of messages, and the search.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::answer::Answer;
use super::rows::{Row, table};
use super::search::{Choices, Search, filters};
use super::{Shown, csv as file};
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::Form;
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::words::{number, span, time};

/// How many rows a page has.
const ROWS: i32 = 50;

/// A part of the list.
struct Found {
    rows: Vec<Row>,
    /// The id before which the list goes on.
    next: Option<i64>,
    /// The time back to which was searched, if that is not all.
    searched_to: Option<String>,
    more_waiting: bool,
}

async fn find(
    view: &View<'_>,
    statements: &Statements<'_>,
    search: &Search,
    most: i32,
) -> Result<Found, Failure> {
    let sees_addresses = view.rights.sees_addresses;
    let cells = match (search.address(), search.text.as_deref()) {
        (Some(address), _) if sees_addresses => {
            let statement = include_str!("../../../sql/page/messages_by_address.sql");
            let parameters = [
                (&address as _, Type::TEXT),
                (&search.before as _, Type::INT8),
                (&most as _, Type::INT4),
            ];
            statements.all(statement, &parameters).await?
        }
        (None, Some(text)) if sees_addresses => {
            let statement = include_str!("../../../sql/page/messages_by_key.sql");
            let parameters = [
                (&text as _, Type::TEXT),
                (&search.before as _, Type::INT8),
                (&most as _, Type::INT4),
            ];
            statements.all(statement, &parameters).await?
        }
        _ => {
            let statement = match sees_addresses {
                true => include_str!("../../../sql/page/messages.sql"),
                false => include_str!("../../../sql/page/messages_monitor.sql"),
            };
            let parameters = [
                (&search.before as _, Type::INT8),
                (&search.state as _, Type::TEXT),
                (&search.kind as _, Type::TEXT),
                (&search.transport as _, Type::TEXT),
                (&most as _, Type::INT4),
            ];
            statements.all(statement, &parameters).await?
        }
    };
    let has_text = search.text.is_some() && sees_addresses;
    let first = cells.first();
    let next_before = first
        .map(|cells| cells.maybe_number("next_before"))
        .transpose()?
        .flatten();
    let searched_to = first
        .map(|cells| cells.maybe("searched_to"))
        .transpose()?
        .flatten();
    let more_waiting = match first {
        Some(cells) if has_text && search.address().is_some() => cells.flag("more_waiting")?,
        _ => false,
    };
    let mut rows = Vec::with_capacity(cells.len());
    for cells in &cells {
        if cells.maybe_number("id")?.is_some() {
            rows.push(Row::read(cells, sees_addresses)?);
        }
    }
    let most = usize::try_from(most).unwrap_or_default();
    let next = match rows.len() == most {
        // One more than is shown.
        true => rows.pop().and(rows.last()).map(|row| row.id),
        false => next_before,
    };
    add_waits(statements, &mut rows).await?;
    Ok(Found {
        rows,
        next,
        searched_to,
        more_waiting,
    })
}

/// Adds why scheduled mail waits.
async fn add_waits(statements: &Statements<'_>, rows: &mut [Row]) -> Result<(), Failure> {
    let scheduled = rows.iter().filter(|row| row.state == "scheduled");
    let ids: Vec<i64> = scheduled.map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let statement = include_str!("../../../sql/page/waits.sql");
    for cells in statements
        .all(statement, &[(&ids, Type::INT8_ARRAY)])
        .await?
    {
        let id = cells.number("id")?;
        if let Some(row) = rows.iter_mut().find(|row| row.id == id) {
            row.why = cells.text("reason")?;
        }
    }
    Ok(())
}

/// The list.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let search = Search::of(form, view.rights);
    let read = view.session.run(Access::Read, async |statements| {
        let found = find(view, statements, &search, ROWS + 1).await?;
        let answer = match search.address() {
            Some(address) if view.rights.sees_addresses && search.before.is_none() => {
                Some(Answer::find(statements, address, found.rows.first()).await?)
            }
            _ => None,
        };
        let retention = statements
            .one(include_str!("../../../sql/page/retention.sql"), &[])
            .await?
            .seconds("retention")?;
        Ok((
            found,
            answer,
            retention,
            Choices::find(view, statements).await?,
        ))
    });
    let ((found, answer, retention, choices), clock) = read.await?;
    let kept = retention.map_or_else(|| "a while".to_owned(), span);
    let is_first = search.before.is_none();
    let main = html! {
        div class="head" { h1 { "Messages" } }
        // A search finds its mail in all states.
        @if search.text.is_none() { (filters(view, &search, &choices)) }
        @if let Some(answer) = &answer {
            div id="answer" data-live class="stack" { (answer.shown(view, &clock)) }
        }
        section class="panel" aria-label="Messages" {
            @if found.rows.is_empty() {
                (nothing(&search, &found, &kept, &clock, is_first))
            } @else {
                (table(view, &found.rows, &clock))
            }
        }
        div class="pages" {
            span class="muted" { (extent(&search, &found, &kept, &clock)) }
            @if !found.rows.is_empty() {
                a class="button" href=(view.path(&format!("messages.csv{}", search.query(search.before)))) { "CSV" }
            }
            @if let Some(next) = found.next {
                @let label = if found.rows.is_empty() { "Search further back" } else { "Older" };
                a class="button" rel="next" href=(view.path(&format!("messages{}", search.query(Some(next))))) { (label) }
            }
        }
    };
    let mut page = Page::new("Messages", Section::Messages, main);
    page.search = search.text.clone().unwrap_or_default();
    Ok(Shown::Page(page, clock))
}

/// The list as CSV, from where the page begins.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn csv(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let search = Search::of(form, view.rights);
    let read = view.session.run(Access::Read, async |statements| {
        find(view, statements, &search, file::ROWS + 1).await
    });
    let (found, _) = read.await?;
    let heading = [
        "id",
        "state",
        "kind",
        "transport",
        "subject",
        "recipients",
        "at",
        "failed_attempts",
        "why",
    ];
    let rows = found.rows.into_iter().map(|row| {
        vec![
            row.id.to_string(),
            row.state,
            row.kind,
            row.transport,
            row.subject.unwrap_or_default(),
            row.recipients.join(", "),
            row.at.unwrap_or_default(),
            row.failed_attempts.to_string(),
            row.why,
        ]
    });
    Ok(file::file("messages.csv", &heading, rows))
}

/// What is there instead of rows.
fn nothing(search: &Search, found: &Found, kept: &str, clock: &Clock, is_first: bool) -> Markup {
    if let Some(to) = &found.searched_to {
        let why = html! { "Searched back to " (time(to, clock)) "." };
        return empty("No match so far", &why);
    }
    match (&search.text, search.is_filter()) {
        (Some(text), _) => {
            let title = format!("Nothing found for “{text}”");
            let why = html! {
                "Searched: recipients, Cc and Bcc, or keys, of all mail that waits, and of mail that ended in the last "
                (kept) ". What ended before has been deleted (mailroom.retention)."
            };
            empty(&title, &why)
        }
        (None, true) => empty("No match", &html! { "No mail is like this." }),
        (None, false) if is_first => html! {
            div class="empty" {
                p { strong { "No mail yet" } "Mail is a row that the application writes in its own transaction. The first one, from psql:" }
                pre id="first-mail" tabindex="0" { code { (FIRST) } }
                p class="js" { button type="button" data-copy=(FIRST) { "Copy" } }
            }
        },
        (None, false) => empty("No more mail", &html! { "This is the end of the list." }),
    }
}

const FIRST: &str = "SELECT mailroom_send('ann@example.com', 'Hello', 'From the database.');";

/// What the list is a part of.
fn extent(search: &Search, found: &Found, kept: &str, clock: &Clock) -> Markup {
    let is_one = found.next.is_none() && search.before.is_none();
    html! {
        @if let (Some(first), Some(last)) = (found.rows.first(), found.rows.last()) {
            @if is_one {
                (number(i64::try_from(found.rows.len()).unwrap_or(0)))
                (if found.rows.len() == 1 { " message. " } else { " messages. " })
            } @else {
                "Messages " (number(first.id)) " to " (number(last.id)) ". "
            }
            @if let Some(to) = &found.searched_to { "Searched back to " (time(to, clock)) ". " }
            "Ended mail is kept for " (kept) "."
            @if found.more_waiting { " Of the waiting mail, the first 20,000 were searched." }
        }
    }
}
