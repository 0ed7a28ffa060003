//! Who gets no mail.

mod acting;

use maud::{Markup, html};
use tokio_postgres::types::Type;

use self::acting::{Given, add};
pub use self::acting::{suppress, unsuppress};
use super::{Shown, csv as file};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::words::{maybe_time, number};

/// How many rows a page has.
const ROWS: usize = 50;

/// What is in force, or what is known of an address.
struct Found {
    /// The address that was looked for; `None` if the text was none.
    address: Option<String>,
    rows: Vec<Cells>,
}

async fn find(view: &View<'_>, form: &Form, most: i32) -> Result<(Found, Clock), Failure> {
    let text = form.get("q");
    let cursor = (form.get("at"), form.raw("after"), form.raw("list"));
    let read = view.session.run(Access::Read, async |statements| {
        let Some(text) = text else {
            let rows = rows(statements, None, cursor, most).await?;
            return Ok(Found {
                address: None,
                rows,
            });
        };
        let statement = include_str!("../../../sql/page/suppressions_key.sql");
        let key = statements.one(statement, &[(&text, Type::TEXT)]).await?;
        let address = key.maybe("address")?;
        let rows = match address.as_deref() {
            Some(_) => rows(statements, address.as_deref(), cursor, most).await?,
            None => Vec::new(),
        };
        Ok(Found { address, rows })
    });
    read.await
}

async fn rows(
    statements: &Statements<'_>,
    address: Option<&str>,
    (at, after, list): (Option<&str>, &str, &str),
    most: i32,
) -> Result<Vec<Cells>, Failure> {
    let statement = include_str!("../../../sql/page/suppressions.sql");
    let parameters = [
        (&address as _, Type::TEXT),
        (&at as _, Type::TEXT),
        (&after as _, Type::TEXT),
        (&most as _, Type::INT4),
        (&list as _, Type::TEXT),
    ];
    statements.all(statement, &parameters).await
}

/// The list.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let most = i32::try_from(ROWS + 1).unwrap_or(i32::MAX);
    let (mut found, clock) = find(view, form, most).await?;
    let q = form.get("q").unwrap_or_default();
    let next = match (found.rows.len() > ROWS, found.rows.get(ROWS - 1)) {
        (true, Some(last)) => Some(query(&[
            ("q", q),
            ("at", &last.text("cursor_at")?),
            ("after", &last.text("cursor_address")?),
            ("list", &last.text("list")?),
        ])),
        _ => None,
    };
    found.rows.truncate(ROWS);
    let rows = &found.rows;
    let main = html! {
        div class="head" { div { h1 { "Suppressions" } p { "Mail to these addresses, all of it or that of a list, is not sent until the suppression ends." } } }
        form class="filters" action=(view.path("suppressions")) {
            div class="field wide" {
                label for="f-address" { "Address" }
                input id="f-address" type="search" name="q" value=(q) placeholder="ann@example.com" spellcheck="false";
            }
            button class="main" { "Show" }
        }
        section class="panel" aria-label="Suppressions" {
            @if rows.is_empty() { (nothing(q, &found, form.get("at").is_none())) } @else { (table(view, rows, &clock)?) }
        }
        div class="pages" {
            span class="muted" { @if next.is_none() { (extent(rows.len(), form.get("at").is_none())) } }
            @if !rows.is_empty() { a class="button" href=(view.path(&format!("suppressions.csv{}", query(&[("q", q)])))) { "CSV" } }
            @if let Some(next) = &next { a class="button" rel="next" href=(view.path(&format!("suppressions{next}"))) { "Older" } }
        }
        @if view.rights.may_suppress { (add(view, &Given::of(form))) }
    };
    let mut page = Page::new("Suppressions", Section::Suppressions, main);
    // Rows, and the buttons in them, stay where they are.
    page.refresh = 0;
    Ok(Shown::Page(page, clock))
}

/// What is there instead of rows.
fn nothing(q: &str, found: &Found, is_first: bool) -> Markup {
    match (q.is_empty(), &found.address) {
        (true, _) if is_first => empty(
            "None",
            &html! { "Bounces, complaints and unsubscriptions add rows, and so can you." },
        ),
        (true, _) => empty(
            "No more suppressions",
            &html! { "This is the end of the list." },
        ),
        (false, None) => empty(
            &format!("“{q}” is not an address"),
            &html! { "Suppressions are looked for by the whole address, such as ann@example.com." },
        ),
        (false, Some(address)) => empty(
            &format!("“{address}” is not suppressed"),
            &html! { "Mail to it goes out." },
        ),
    }
}

/// How many rows there are on the last page, which may be the first.
fn extent(rows: usize, is_first: bool) -> String {
    let count = number(i64::try_from(rows).unwrap_or(0));
    match (rows, is_first) {
        (0, _) => String::new(),
        (1, true) => "1 suppression.".to_owned(),
        (_, true) => format!("{count} suppressions."),
        (1, false) => "The last suppression.".to_owned(),
        (_, false) => format!("The last {count} suppressions."),
    }
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
            tbody { @for row in rows { (self::row(view, row, clock)?) } }
        }
    })
}

/// A reason for which an address is suppressed.
struct Reason {
    name: String,
    since: String,
    /// Empty: no end.
    until: String,
    bounces: i64,
    has_ended: bool,
}

fn reasons(row: &Cells) -> Result<Vec<Reason>, Failure> {
    let (sinces, untils) = (row.list("sinces")?, row.list("untils")?);
    let (bounces, ended) = (row.list("bounces")?, row.list("ended")?);
    let names = row.list("reasons")?.into_iter();
    let rest = sinces
        .into_iter()
        .zip(untils)
        .zip(bounces.into_iter().zip(ended));
    let all = names
        .zip(rest)
        .map(|(name, ((since, until), (bounces, ended)))| Reason {
            name,
            since,
            until,
            bounces: bounces.parse().unwrap_or_default(),
            has_ended: ended == "true",
        });
    Ok(all.collect())
}

/// What of the mail to an address is suppressed.
fn scope(list: &str, is_complained_only: bool) -> String {
    match (list.is_empty(), is_complained_only) {
        // A complaint must not keep people out of their accounts.
        (true, true) => "all but links".to_owned(),
        (true, false) => "all mail".to_owned(),
        (false, _) => list.to_owned(),
    }
}

fn row(view: &View<'_>, row: &Cells, clock: &Clock) -> Result<Markup, Failure> {
    let (address, list) = (row.text("address")?, row.text("list")?);
    let until = row.maybe("until")?;
    let reasons = reasons(row)?;
    let in_force = reasons.iter().filter(|reason| !reason.has_ended);
    let lifted: Vec<&str> = in_force.map(|reason| reason.name.as_str()).collect();
    let of = scope(&list, matches!(lifted[..], ["complained"]));
    let label = format!("Lift the suppression of {address}");
    let fields = [
        ("address", address.as_str()),
        ("list", &list),
        ("reasons", &lifted.join(",")),
    ];
    Ok(html! {
        tr {
            th scope="row" class="first what" {
                a data-row href=(view.path(&format!("messages{}", query(&[("q", &address)])))) { (address) }
            }
            td {
                @for reason in &reasons {
                    div {
                        span class=(class(&reason.name)) { (reason.name) }
                        @if reason.bounces > 1 { span class="why" { (number(reason.bounces)) " times" } }
                        @if reason.has_ended { span class="why" { "it has ended" } }
                        @else if reasons.len() > 1 {
                            span class="why" {
                                "since " (maybe_time(Some(&reason.since), clock))
                                @if reason.until.is_empty() { ", no end" } @else { ", until " (maybe_time(Some(&reason.until), clock)) }
                            }
                        }
                    }
                }
            }
            td data-label="list" { span class="any" { (of) } }
            td data-label="since" { (maybe_time(row.maybe("since")?.as_deref(), clock)) }
            td data-label="until" { @if until.is_some() { (maybe_time(until.as_deref(), clock)) } @else { "no end" } }
            @if view.rights.may_unsuppress {
                td {
                    @if !lifted.is_empty() {
                        span class="acts" {
                            details {
                                summary aria-label=(label) { "Lift…" }
                                (view.form("suppressions/unsuppress", &fields, &html! {
                                    span { "This ends it for " span class="any" { (of) } ": " (lifted.join(", ")) "." }
                                    button class="main" { "Lift" }
                                }))
                            }
                        }
                    }
                }
            }
        }
    })
}

fn class(reason: &str) -> &'static str {
    match reason {
        "bounced" => "state bounced",
        "complained" => "state bad",
        "unsubscribed" => "state cancelled",
        _ => "state suppressed",
    }
}

/// The list as CSV.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn csv(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let (found, _) = find(view, form, file::ROWS).await?;
    let names = ["address", "list", "reason", "since", "until"];
    let mut lines = Vec::new();
    for row in &found.rows {
        let (address, list) = (row.text("address")?, row.text("list")?);
        for reason in reasons(row)? {
            lines.push(vec![
                address.clone(),
                list.clone(),
                reason.name,
                reason.since,
                reason.until,
            ]);
        }
    }
    let most = usize::try_from(file::ROWS).unwrap_or(usize::MAX);
    Ok(file::file(
        "suppressions.csv",
        &names,
        lines.into_iter().take(most),
    ))
}
