//! What people did to mail, links and the worker.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Shown, csv as file};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::words::maybe_time;

/// How many rows a page has.
const ROWS: usize = 50;

async fn find(view: &View<'_>, form: &Form, most: i32) -> Result<(Vec<Cells>, Clock), Failure> {
    let (before, mail) = (form.number("before"), form.number("message"));
    let statement = include_str!("../../../sql/page/log.sql");
    let parameters = [
        (&before as _, Type::INT8),
        (&mail as _, Type::INT8),
        (&most as _, Type::INT4),
    ];
    let read = view.session.run(Access::Read, async |statements| {
        statements.all(statement, &parameters).await
    });
    read.await
}

/// The list.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let most = i32::try_from(ROWS + 1).unwrap_or(i32::MAX);
    let (mut rows, clock) = find(view, form, most).await?;
    let mail = form.get("message").unwrap_or_default();
    let next = match (rows.len() > ROWS, rows.get(ROWS - 1)) {
        (true, Some(last)) => {
            let before = last.number("id")?.to_string();
            Some(query(&[("message", mail), ("before", &before)]))
        }
        _ => None,
    };
    rows.truncate(ROWS);
    let main = html! {
        div class="head" {
            div { h1 { "Log" } p { "What people did to mail, links and the worker, here or from psql." } }
        }
        section class="panel" aria-label="Log" {
            @if rows.is_empty() {
                (empty("Nothing yet", &html! { "Retries, cancellations, pauses and the like are recorded with the role." }))
            } @else {
                (table(view, &rows, &clock)?)
            }
        }
        div class="pages" {
            span class="muted" {}
            @if !rows.is_empty() { a class="button" href=(view.path(&format!("log.csv{}", query(&[("message", mail)])))) { "CSV" } }
            @if let Some(next) = &next { a class="button" rel="next" href=(view.path(&format!("log{next}"))) { "Older" } }
        }
    };
    Ok(Shown::Page(Page::new("Log", Section::Log, main), clock))
}

fn table(view: &View<'_>, rows: &[Cells], clock: &Clock) -> Result<Markup, Failure> {
    Ok(html! {
        table class="cards" {
            thead {
                tr {
                    th scope="col" { "When" }
                    th scope="col" { "Role" }
                    th scope="col" { "Action" }
                    th scope="col" { "Message" }
                    th scope="col" { "Details" }
                }
            }
            tbody id="rows" data-live {
                @for row in rows {
                    tr {
                        td class="side nowrap" { (maybe_time(row.maybe("at")?.as_deref(), clock)) }
                        th scope="row" class="first" { strong { bdi { (row.text("role")?) } } }
                        td { (word(&row.text("action")?)) }
                        td data-label="message" {
                            @if let Some(id) = row.maybe_number("outbox_id")? {
                                a data-row href=(view.path(&format!("messages/{id}"))) { (id) }
                            } @else { "–" }
                        }
                        td class="any" { bdi { (details(&row.text("detail")?)) } }
                    }
                }
            }
        }
    })
}

fn word(action: &str) -> &str {
    match action {
        "sent_again" => "sent again",
        "paused" => "paused the worker",
        "resumed" => "resumed the worker",
        "woken" => "woke the worker",
        "links_ended" => "ended links",
        "link_requested" => "requested a link",
        "suppressed" => "suppressed an address",
        "unsuppressed" => "lifted a suppression",
        other => other,
    }
}

/// A JSON object as names and values.
fn details(detail: &str) -> String {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(detail) else {
        return detail.to_owned();
    };
    let pair = |(name, value): (&String, &serde_json::Value)| {
        let value = match value {
            serde_json::Value::String(text) => text.clone(),
            // Of whole numbers, as all of ours are, what is written is what was stored.
            other => other.to_string(),
        };
        (!value.is_empty() && value != "null")
            .then(|| format!("{} {value}", name.replace('_', " ")))
    };
    object
        .iter()
        .filter_map(pair)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The list as CSV.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn csv(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let (mut rows, _) = find(view, form, file::ROWS + 1).await?;
    let most = usize::try_from(file::ROWS).unwrap_or_default();
    let rest = match (rows.len() > most, rows.get(most - 1)) {
        (true, Some(last)) => Some(format!(
            "incomplete: continues before id {}",
            last.number("id")?
        )),
        _ => None,
    };
    rows.truncate(most);
    let heading = ["at", "role", "action", "message", "detail"];
    let mut lines = Vec::with_capacity(rows.len());
    for row in &rows {
        let mail = row.maybe_number("outbox_id")?.map(|id| id.to_string());
        lines.push(vec![
            row.text("at")?,
            row.text("role")?,
            row.text("action")?,
            mail.unwrap_or_default(),
            row.text("detail")?,
        ]);
    }
    Ok(file::file_until(
        "log.csv",
        &heading,
        lines.into_iter(),
        rest,
    ))
}
