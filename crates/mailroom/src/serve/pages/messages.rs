//! The list of messages, and the search.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::answer::Answer;
use super::message::reported;
use super::rows::{Row, table};
use super::search::{Choices, Search, filters};
use super::{Shown, csv as file};
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::Form;
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::words::{number, one_way, span, time};

/// How many rows a page has.
const ROWS: usize = 50;
/// How long a page, and a file, search through parts of the outbox.
const PAGE_TIME: Duration = Duration::from_millis(500);
const FILE_TIME: Duration = Duration::from_secs(5);

/// A part of the list.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    /// The id before which the list goes on.
    next: Option<i64>,
    /// The time back to which was searched, if that is not all.
    searched_to: Option<String>,
    more_waiting: bool,
    /// Whether the text that was typed was found as a key, though it may be an address too.
    by_key: bool,
}

/// A statement that finds mail, and how to call it.
#[derive(Clone, Copy)]
enum By {
    Address,
    Key,
    Filter,
}

/// Finds at most so many rows, and goes on with further parts of the outbox until it has them, or until this time.
async fn find(
    view: &View<'_>,
    statements: &Statements<'_>,
    search: &Search,
    (most, until): (usize, Instant),
) -> Result<Found, Failure> {
    let sees_addresses = view.rights.sees_addresses;
    if search.address().is_some() && sees_addresses {
        let found = walk(view, statements, search, By::Address, (most, until)).await?;
        if !found.rows.is_empty() || found.next.is_some() {
            return Ok(found);
        }
    }
    let by = match search.text.is_some() && sees_addresses {
        true => By::Key,
        false => By::Filter,
    };
    walk(view, statements, search, by, (most, until)).await
}

async fn walk(
    view: &View<'_>,
    statements: &Statements<'_>,
    search: &Search,
    by: By,
    (most, until): (usize, Instant),
) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut before = search.before;
    // A part may have mail of another one too: what is found by an index.
    let mut seen = HashSet::new();
    loop {
        let wanted = most - found.rows.len();
        let part = part(view, statements, search, by, (before, wanted)).await?;
        let new = part.rows.into_iter().filter(|row| seen.insert(row.id));
        found.rows.extend(new);
        found.next = part.next;
        found.searched_to = part.searched_to;
        found.more_waiting |= part.more_waiting;
        before = part.next;
        if before.is_none() || found.rows.len() >= most || Instant::now() >= until {
            break;
        }
    }
    found.rows.sort_by_key(|row| Reverse(row.id));
    found.by_key = matches!(by, By::Key) && !found.rows.is_empty();
    Ok(found)
}

/// What one statement finds: it reads 20,000 mails at most.
async fn part(
    view: &View<'_>,
    statements: &Statements<'_>,
    search: &Search,
    by: By,
    (before, wanted): (Option<i64>, usize),
) -> Result<Found, Failure> {
    let sees_addresses = view.rights.sees_addresses;
    // One more tells whether there are more.
    let most = i32::try_from(wanted + 1).unwrap_or(i32::MAX);
    let text = match by {
        By::Address => search.address(),
        _ => search.text.as_deref(),
    };
    let of_text = [
        (&text as _, Type::TEXT),
        (&before as _, Type::INT8),
        (&most as _, Type::INT4),
    ];
    let of_filter = [
        (&before as _, Type::INT8),
        (&search.state as _, Type::TEXT),
        (&search.kind as _, Type::TEXT),
        (&search.transport as _, Type::TEXT),
        (&most as _, Type::INT4),
    ];
    let (statement, parameters) = match (by, sees_addresses) {
        (By::Address, _) => (
            include_str!("../../../sql/page/messages_by_address.sql"),
            &of_text[..],
        ),
        (By::Key, _) => (
            include_str!("../../../sql/page/messages_by_key.sql"),
            &of_text[..],
        ),
        (By::Filter, true) => (
            include_str!("../../../sql/page/messages.sql"),
            &of_filter[..],
        ),
        (By::Filter, false) => (
            include_str!("../../../sql/page/messages_monitor.sql"),
            &of_filter[..],
        ),
    };
    let cells = statements.all(statement, parameters).await?;
    let mut found = Found::default();
    if let Some(first) = cells.first() {
        found.next = first.maybe_number("next_before")?;
        found.searched_to = first.maybe("searched_to")?;
        found.more_waiting = matches!(by, By::Address) && first.flag("more_waiting")?;
    }
    for cells in &cells {
        if cells.maybe_number("id")?.is_some() {
            found.rows.push(Row::read(cells, sees_addresses)?);
        }
    }
    if found.rows.len() > wanted {
        found.rows.truncate(wanted);
        found.next = found.rows.last().map(|row| row.id);
        found.searched_to = None;
    }
    add_waits(statements, &mut found.rows).await?;
    add_reports(statements, &mut found.rows).await?;
    Ok(found)
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

/// Adds what providers reported of sent mail.
async fn add_reports(statements: &Statements<'_>, rows: &mut [Row]) -> Result<(), Failure> {
    let sent = rows.iter().filter(|row| row.state == "sent");
    let ids: Vec<i64> = sent.map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let statement = include_str!("../../../sql/page/reported.sql");
    let mut types = HashMap::new();
    for cells in statements
        .all(statement, &[(&ids, Type::INT8_ARRAY)])
        .await?
    {
        types.insert(cells.number("id")?, cells.list("types")?);
    }
    for row in rows {
        let types = types.get(&row.id).map_or(&[][..], Vec::as_slice);
        let names = types.iter().map(String::as_str);
        row.reported = match row.addresses() {
            1 => reported::of_one(names),
            _ => reported::worst(names),
        };
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
        let until = Instant::now() + PAGE_TIME;
        let found = find(view, statements, &search, (ROWS, until)).await?;
        let answer = match search.address() {
            Some(address) if view.rights.sees_addresses && search.before.is_none() => {
                let rows = if found.by_key { &[] } else { &found.rows[..] };
                Some(Answer::find(statements, address, rows).await?)
            }
            _ => None,
        };
        let retention = statements
            .one(include_str!("../../../sql/page/retention.sql"), &[])
            .await?
            .seconds("retention")?;
        // A search finds its mail in all states.
        let choices = match search.text {
            Some(_) => None,
            None => Some(Choices::find(view, statements).await?),
        };
        Ok((found, answer, retention, choices))
    });
    let ((found, answer, retention, choices), clock) = read.await?;
    let kept = retention.map_or_else(|| "a while".to_owned(), span);
    let is_first = search.before.is_none();
    let main = html! {
        div class="head" { h1 { "Messages" } }
        @if let Some(choices) = &choices { (filters(view, &search, choices)) }
        @if let Some(answer) = &answer {
            div id="answer" data-live class="stack" { (answer.shown(view, &clock)?) }
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
    let most = usize::try_from(file::ROWS).unwrap_or_default();
    let read = view.session.run(Access::Read, async |statements| {
        let until = Instant::now() + FILE_TIME;
        find(view, statements, &search, (most, until)).await
    });
    let (found, _) = read.await?;
    let rest = found
        .next
        .map(|id| format!("incomplete: continues before id {id}"));
    let rows = found.rows.into_iter().map(|row| {
        vec![
            row.id.to_string(),
            row.state,
            row.kind,
            row.transport,
            row.subject.unwrap_or_default(),
            row.recipients.join(", "),
            row.cc.join(", "),
            row.bcc.join(", "),
            row.at.unwrap_or_default(),
            row.failed_attempts.to_string(),
            row.why,
            row.reported.map_or("", |kind| kind.name).to_owned(),
        ]
    });
    Ok(file::file_until("messages.csv", &COLUMNS, rows, rest))
}

/// The heading of the file.
const COLUMNS: [&str; 12] = [
    "id",
    "state",
    "kind",
    "transport",
    "subject",
    "recipients",
    "cc",
    "bcc",
    "at",
    "failed_attempts",
    "why",
    "reported",
];

/// What is there instead of rows.
fn nothing(search: &Search, found: &Found, kept: &str, clock: &Clock, is_first: bool) -> Markup {
    if let Some(to) = &found.searched_to {
        let why = html! { "Searched back to " (time(to, clock)) "." };
        return empty("No match so far", &why);
    }
    match (&search.text, search.is_filter()) {
        (Some(text), _) => {
            let title = format!("Nothing found for “{}”", one_way(text));
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
