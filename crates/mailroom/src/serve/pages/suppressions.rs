//! Who gets no mail.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Done, Shown, csv as file};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::words::{maybe_time, number};

/// How many rows a page has.
const ROWS: usize = 50;

async fn find(view: &View<'_>, form: &Form, most: i32) -> Result<(Vec<Cells>, Clock), Failure> {
    let address = form.get("q");
    let (at, after) = (form.get("at"), form.get("after"));
    let statement = include_str!("../../../sql/page/suppressions.sql");
    let parameters = [
        (&address as _, Type::TEXT),
        (&at as _, Type::TEXT),
        (&after as _, Type::TEXT),
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
    let q = form.get("q").unwrap_or_default();
    let next = match (rows.len() > ROWS, rows.get(ROWS - 1)) {
        (true, Some(last)) => Some(query(&[
            ("q", q),
            ("at", &last.text("cursor_at")?),
            ("after", &last.text("cursor_address")?),
        ])),
        _ => None,
    };
    rows.truncate(ROWS);
    let main = html! {
        div class="head" { div { h1 { "Suppressions" } p { "No mail is sent to these addresses until the suppression ends." } } }
        form class="filters" action=(view.path("suppressions")) {
            div class="field wide" {
                label for="f-address" { "Address" }
                input id="f-address" type="search" name="q" value=(q) placeholder="ann@example.com" spellcheck="false";
            }
            button class="main" { "Show" }
        }
        section class="panel" aria-label="Suppressions" {
            @if rows.is_empty() {
                @if q.is_empty() {
                    (empty("None", &html! { "Bounces, complaints and unsubscriptions add rows, and so can you." }))
                } @else {
                    (empty(&format!("“{q}” is not suppressed"), &html! { "Mail to it goes out." }))
                }
            } @else {
                (table(view, &rows, &clock)?)
            }
        }
        div class="pages" {
            span class="muted" { @if next.is_none() {
                    (number(i64::try_from(rows.len()).unwrap_or(0))) (if rows.len() == 1 { " suppression." } else { " suppressions." })
                } }
            @if !rows.is_empty() { a class="button" href=(view.path(&format!("suppressions.csv{}", query(&[("q", q)])))) { "CSV" } }
            @if let Some(next) = &next { a class="button" rel="next" href=(view.path(&format!("suppressions{next}"))) { "Older" } }
        }
        @if view.rights.may_suppress { (add(view)) }
    };
    Ok(Shown::Page(
        Page::new("Suppressions", Section::Suppressions, main),
        clock,
    ))
}

fn table(view: &View<'_>, rows: &[Cells], clock: &Clock) -> Result<Markup, Failure> {
    Ok(html! {
        table class="cards" {
            thead {
                tr {
                    th scope="col" { "Address" }
                    th scope="col" { "Reason" }
                    th scope="col" { "List" }
                    th scope="col" { "Since" }
                    th scope="col" { "Until" }
                    @if view.rights.may_unsuppress { th scope="col" { span class="hidden" { "Actions" } } }
                }
            }
            tbody id="rows" data-live { @for row in rows { (self::row(view, row, clock)?) } }
        }
    })
}

fn row(view: &View<'_>, row: &Cells, clock: &Clock) -> Result<Markup, Failure> {
    let (address, list, reason) = (row.text("address")?, row.text("list")?, row.text("reason")?);
    let class = match reason.as_str() {
        "bounced" => "state bounced",
        "complained" => "state bad",
        "unsubscribed" => "state cancelled",
        _ => "state suppressed",
    };
    let times = row.number("bounces")?;
    let until = row.maybe("until")?;
    let is_in_force = row.flag("in_force")?;
    let label = format!("Lift the suppression of {address}");
    let scope = match (list.is_empty(), reason == "complained") {
        (true, true) => "all but links",
        (true, false) => "all mail",
        (false, _) => &list,
    };
    Ok(html! {
        tr {
            th scope="row" class="first what" {
                a data-row href=(view.path(&format!("messages{}", query(&[("q", &address)])))) { (address) }
            }
            td {
                span class=(class) { (reason) }
                @if times > 1 { span class="why" { (number(times)) " times" } }
                @if !is_in_force { span class="why" { "it has ended" } }
            }
            td data-label="list" { span class="any" { (scope) } }
            td data-label="since" { (maybe_time(row.maybe("since")?.as_deref(), clock)) }
            td data-label="until" { @if until.is_some() { (maybe_time(until.as_deref(), clock)) } @else { "no end" } }
            @if view.rights.may_unsuppress {
                td {
                    span class="acts" {
                        @if is_in_force {
                            (view.form("suppressions/unsuppress", &[("address", &address), ("list", &list)], &html! {
                                button class="small" aria-label=(label) { "Lift" }
                            }))
                        }
                    }
                }
            }
        }
    })
}

fn add(view: &View<'_>) -> Markup {
    let fields = html! {
        div class="field wide" {
            label for="f-add" { "Address to suppress" }
            input id="f-add" type="email" name="address" required spellcheck="false";
        }
        div class="field" {
            label for="f-list" { "List (empty: all mail)" }
            input id="f-list" name="list";
        }
        div class="field" {
            label for="f-until" { "Until (empty: for ever)" }
            input id="f-until" type="date" name="until";
        }
        button { "Suppress" }
    };
    html! {
        section class="panel" {
            header { h2 { "Suppress an address" } }
            div class="body" { (view.form_of("filters", "suppressions/suppress", &[], &fields)) }
        }
    }
}

/// The list as CSV.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn csv(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let (rows, _) = find(view, form, file::ROWS).await?;
    let names = ["address", "list", "reason", "since", "until"];
    let rows: Result<Vec<Vec<String>>, Failure> = rows
        .iter()
        .map(|row| names.iter().map(|name| row.text(name)).collect())
        .collect();
    Ok(file::file("suppressions.csv", &names, rows?.into_iter()))
}

/// Suppresses an address.
///
/// # Errors
/// As all that is done.
pub async fn suppress(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let (address, list, until) = (
        form.raw("address"),
        form.raw("list").trim(),
        form.get("until"),
    );
    let statement = include_str!("../../../sql/page/act_suppress.sql");
    let parameters = [
        (&address as _, Type::TEXT),
        (&list as _, Type::TEXT),
        (&until as _, Type::TEXT),
    ];
    let row = statements.one(statement, &parameters).await?;
    Ok(match row.flag("done")? {
        true => Done::new("suppressed an address", "Suppressed."),
        false => Done::new("suppressed an address", "It was suppressed by hand before."),
    })
}

/// Lifts a suppression.
///
/// # Errors
/// As all that is done.
pub async fn unsuppress(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let (address, list) = (form.raw("address"), form.raw("list"));
    let statement = include_str!("../../../sql/page/act_unsuppress.sql");
    let parameters = [(&address as _, Type::TEXT), (&list as _, Type::TEXT)];
    let row = statements.one(statement, &parameters).await?;
    Ok(match row.flag("done")? {
        true => Done::new("lifted a suppression", "Lifted. Mail to it goes out again."),
        false => Done::nothing("lifted no suppression", "It was not suppressed.", ""),
    })
}
