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

/// What is to be suppressed, as it was typed.
struct Given<'a> {
    address: &'a str,
    list: &'a str,
    until: &'a str,
}

impl<'a> Given<'a> {
    fn of(form: &'a Form) -> Self {
        Self {
            address: form.raw("address").trim(),
            // That of a cursor is not one that was typed.
            list: match form.get("at") {
                None => form.raw("list").trim(),
                Some(_) => "",
            },
            until: form.raw("until").trim(),
        }
    }

    /// The page whose form holds it.
    fn page(&self) -> String {
        let all = query(&[
            ("address", self.address),
            ("list", self.list),
            ("until", self.until),
        ]);
        // What is much too long is not worth a query that a proxy refuses.
        match all.len() {
            ..2_000 => format!("suppressions{all}"),
            _ => "suppressions".to_owned(),
        }
    }
}

fn add(view: &View<'_>, given: &Given<'_>) -> Markup {
    let fields = html! {
        div class="field wide" {
            label for="f-add" { "Address to suppress" }
            // A field of type email refuses local parts that are not ASCII.
            input id="f-add" type="text" inputmode="email" autocomplete="off" name="address" value=(given.address) required spellcheck="false";
        }
        div class="field" {
            label for="f-list" { "List (empty: all mail)" }
            input id="f-list" name="list" value=(given.list);
        }
        div class="field" {
            label for="f-until" { "Until (empty: for ever)" }
            input id="f-until" type="date" name="until" value=(given.until);
        }
        button { "Suppress" }
    };
    html! {
        section class="panel" {
            header { h2 { "Suppress an address" } }
            // Back to the list: this page may be one whose form holds what was typed before.
            div class="body" { (view.form_of(("filters", "suppressions"), "suppressions/suppress", &[], &fields)) }
        }
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

/// Suppresses an address.
///
/// # Errors
/// As all that is done.
pub async fn suppress(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let given = Given::of(form);
    statements.all("SAVEPOINT given", &[]).await?;
    match given.suppress(statements).await {
        // What was typed is not valid, and is shown again.
        Err(Failure::Statement(statement)) if statement.sqlstate.starts_with("22") => {
            statements.all("ROLLBACK TO SAVEPOINT given", &[]).await?;
            Ok(Done {
                notice: super::refusal(&statement),
                to: Some(given.page()),
                ..Done::new("suppressed no address", "")
            })
        }
        done => done,
    }
}

/// Since when an address is suppressed by hand, and until when; empty: no end.
struct ByHand {
    since: String,
    until: String,
}

impl Given<'_> {
    async fn suppress(&self, statements: &Statements<'_>) -> Result<Done, Failure> {
        let before = self.by_hand(statements).await?;
        let until = Some(self.until).filter(|until| !until.is_empty());
        let statement = include_str!("../../../sql/page/act_suppress.sql");
        let parameters = [
            (&self.address as _, Type::TEXT),
            (&self.list as _, Type::TEXT),
            (&until as _, Type::TEXT),
        ];
        let row = statements.one(statement, &parameters).await?;
        if row.maybe("done")?.is_none() {
            return Ok(Done {
                to: Some(self.page()),
                ..Done::nothing(
                    "suppressed no address",
                    format!(
                        "Not suppressed: {} has passed.",
                        day_and_time(&row.text("until")?)
                    ),
                    "Pass a later end, or none.",
                )
            });
        }
        let now = self.by_hand(statements).await?;
        let done = |message: String| Done::new("suppressed an address", message);
        let of = scope(self.list, false);
        Ok(match (before, now) {
            (_, None) => done("Suppressed.".to_owned()),
            (None, Some(now)) => done(format!("Suppressed for {}: {}.", named(&of), now.until())),
            (Some(before), Some(now)) => {
                let mut done = done(format!(
                    "It was suppressed for {} before, since {}. Now: {}.",
                    named(&of),
                    day_and_time(&now.since),
                    now.until()
                ));
                if before.until != now.until {
                    done.notice.detail = format!("Before: {}.", before.until());
                } else if now.until != row.text("until")? {
                    done.notice.detail =
                        "The end has not changed, because an earlier one does not count."
                            .to_owned();
                    done.notice.hint =
                        "Lift the suppression first to have it end sooner.".to_owned();
                }
                done
            }
        })
    }

    /// What holds of it; nothing to a role that may suppress, but not see it.
    async fn by_hand(&self, statements: &Statements<'_>) -> Result<Option<ByHand>, Failure> {
        statements.all("SAVEPOINT seen", &[]).await?;
        let rows = match rows(statements, Some(self.address), (None, "", ""), i32::MAX).await {
            Err(Failure::Statement(statement)) if statement.sqlstate == "42501" => {
                statements.all("ROLLBACK TO SAVEPOINT seen", &[]).await?;
                return Ok(None);
            }
            rows => rows?,
        };
        for row in &rows {
            if row.text("list")? != self.list {
                continue;
            }
            let mut all = reasons(row)?.into_iter();
            let found = all.find(|reason| reason.name == "manual" && !reason.has_ended);
            return Ok(found.map(|reason| ByHand {
                since: reason.since,
                until: reason.until,
            }));
        }
        Ok(None)
    }
}

impl ByHand {
    fn until(&self) -> String {
        match self.until.as_str() {
            "" => "no end".to_owned(),
            until => format!("until {}", day_and_time(until)),
        }
    }
}

/// A time of the database as text: `2027-01-01 00:00`.
fn day_and_time(iso: &str) -> String {
    match iso.split_once('T') {
        Some((day, rest)) => format!("{day} {}", rest.get(..5).unwrap_or(rest)),
        None => iso.to_owned(),
    }
}

/// What is suppressed, within a sentence.
fn named(scope: &str) -> String {
    match scope {
        "all mail" | "all but links" => scope.to_owned(),
        list => format!("the list “{list}”"),
    }
}

/// Lifts a suppression.
///
/// # Errors
/// As all that is done.
pub async fn unsuppress(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let (address, list, reasons) = (form.raw("address"), form.raw("list"), form.get("reasons"));
    let statement = include_str!("../../../sql/page/act_unsuppress.sql");
    let parameters = [
        (&address as _, Type::TEXT),
        (&list as _, Type::TEXT),
        (&reasons as _, Type::TEXT),
    ];
    let row = statements.one(statement, &parameters).await?;
    let reasons = row.list("reasons")?.join(", ");
    Ok(match row.maybe("done")?.as_deref() {
        None if reasons.is_empty() => Done::nothing(
            "lifted no suppression",
            "It is not suppressed any more.",
            "",
        ),
        None => Done::nothing(
            "lifted no suppression",
            format!("Not lifted: the reasons are others by now ({reasons})."),
            "Look at them, and lift it again if it should be.",
        ),
        Some("false") => Done::nothing("lifted no suppression", "It was not suppressed.", ""),
        Some(_) => {
            let of = match list.is_empty() {
                true => "all mail".to_owned(),
                false => format!("the list “{list}”"),
            };
            let lifted = match reasons.is_empty() {
                true => format!("What had ended for {of} is deleted."),
                false => format!("Lifted for {of} ({reasons})."),
            };
            let still = row.list("still")?;
            let rest = remaining(&still, row.flag("all_but_links")?, list.is_empty());
            Done::new("lifted a suppression", format!("{lifted} {rest}"))
        }
    })
}

/// What of the mail to an address is suppressed still.
fn remaining(still: &[String], all_but_links: bool, was_all: bool) -> String {
    if still.iter().any(String::is_empty) {
        return match all_but_links {
            true => "All mail to it but links is still suppressed.".to_owned(),
            false => "All mail to it is still suppressed.".to_owned(),
        };
    }
    match still {
        [] if was_all => "Mail to it goes out again.".to_owned(),
        [] => "Mail of that list to it goes out again.".to_owned(),
        [list] => format!("Mail of the list “{list}” to it is still suppressed."),
        [list, rest @ ..] => format!(
            "Mail of the list “{list}” and {} more to it is still suppressed.",
            number(i64::try_from(rest.len()).unwrap_or(0))
        ),
    }
}
