//! What failed, by reason.

mod many;

use maud::{Markup, html};
use tokio_postgres::types::Type;

use self::many::Conditions;
pub use self::many::{confirm, retry};
use super::Shown;
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View, empty, some};
use crate::serve::words::{breakable, maybe_time, number};

/// How far back one can look: intervals of PostgreSQL.
const SPANS: [&str; 4] = ["1 hour", "24 hours", "7 days", "30 days"];
const USUAL: &str = "24 hours";
/// What failures.sql returns at most.
const GROUPS: usize = 100;

fn since(form: &Form) -> &'static str {
    let asked = form.get("since").unwrap_or(USUAL);
    SPANS
        .into_iter()
        .find(|known| *known == asked)
        .unwrap_or(USUAL)
}

/// What failed in this interval.
///
/// # Errors
/// The statement failed.
pub async fn find(
    view: &View<'_>,
    statements: &Statements<'_>,
    since: &str,
) -> Result<Vec<Cells>, Failure> {
    let statement = match view.rights.sees_addresses {
        true => include_str!("../../../sql/page/failures.sql"),
        false => include_str!("../../../sql/page/failures_monitor.sql"),
    };
    statements.all(statement, &[(&since, Type::TEXT)]).await
}

/// The page.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let since = since(form);
    let read = view.session.run(Access::Read, async |statements| {
        find(view, statements, since).await
    });
    let (groups, clock) = read.await?;
    let mut all = 0;
    for group in &groups {
        all += group.number("mails")?;
    }
    let searched_to = groups
        .first()
        .map(|group| group.maybe("searched_to"))
        .transpose()?
        .flatten();
    let main = html! {
        div class="head" {
            h1 { "Failures" }
            nav class="tabs" aria-label="Since" {
                @for known in SPANS {
                    a href=(view.path(&format!("failures{}", query(&[("since", known)]))))
                        aria-current=[(known == since).then_some("true")] { (known) }
                }
            }
        }
        section class="panel" id="groups" data-live aria-label="Failures by reason" {
            (table(view, &groups, since, usize::MAX, &clock)?)
        }
        p class="muted" {
            (number(all)) (if all == 1 { " message" } else { " messages" }) " failed in the last " (since) ". "
            @if searched_to.is_some() { "There are more before " (maybe_time(searched_to.as_deref(), &clock)) ". " }
            "Mail that is " a href=(view.path("messages?state=expired")) { "expired" } " or "
            a href=(view.path("messages?state=suppressed")) { "suppressed" } " is not counted."
        }
    };
    Ok(Shown::Page(
        Page::new("Failures", Section::Failures, main),
        clock,
    ))
}

/// The groups, with a button to retry each.
///
/// # Errors
/// A column cannot be read.
pub fn table(
    view: &View<'_>,
    groups: &[Cells],
    since: &str,
    most: usize,
    clock: &Clock,
) -> Result<Markup, Failure> {
    if groups.is_empty() {
        return Ok(empty(
            "None",
            &html! { "Mail that fails for good is listed here, by reason." },
        ));
    }
    let may_retry = view.rights.may_retry_failed;
    let all: Result<Vec<Conditions>, Failure> = groups.iter().map(Conditions::of_group).collect();
    let all = all?;
    // Otherwise there may be further groups.
    let searched_to = groups.first().map(|group| group.maybe("searched_to"));
    let is_all = groups.len() < GROUPS && searched_to.transpose()?.flatten().is_none();
    let is_alone =
        |own: &Conditions| is_all && all.iter().filter(|one| own.cover(one)).count() == 1;
    Ok(html! {
        table class="cards" {
            thead {
                tr {
                    th scope="col" class="num" { "Messages" }
                    th scope="col" { "Outcome" }
                    th scope="col" { "Error" }
                    th scope="col" { "Code" }
                    th scope="col" { "Kind" }
                    th scope="col" { "Transport" }
                    th scope="col" { "Last" }
                    @if may_retry { th scope="col" { span class="hidden" { "Actions" } } }
                }
            }
            tbody {
                @for (group, conditions) in groups.iter().zip(&all).take(most) {
                    (row(view, group, (conditions, is_alone(conditions)), since, clock)?)
                }
            }
        }
    })
}

fn row(
    view: &View<'_>,
    group: &Cells,
    (conditions, is_alone): (&Conditions, bool),
    since: &str,
    clock: &Clock,
) -> Result<Markup, Failure> {
    let mails = group.number("mails")?;
    let (kind, transport) = (group.text("kind")?, group.text("transport")?);
    let outcome = group.maybe("outcome")?;
    let code = group.maybe_number("response_code")?;
    let error = group.text("error")?;
    let (class, word) = match outcome.as_deref() {
        None | Some("failed") => ("state failed", "failed"),
        Some("lease_expired") => ("state warning", "lease expired"),
        Some(other) => ("state warning", other),
    };
    let domain = match view.rights.sees_addresses {
        true => group.text("domain")?,
        false => String::new(),
    };
    let domain = match domain.is_empty() {
        true => String::new(),
        false => match group.number("domain_mails")? {
            of if of == mails => domain,
            of => format!("mostly {domain} ({})", number(of)),
        },
    };
    let code_text = code.map(|code| code.to_string()).unwrap_or_default();
    let retry = conditions.query(since);
    // Other errors may have the same conditions: how many there are, the question says.
    let label = match is_alone {
        true => format!("Retry {}…", number(mails)),
        false => "Retry…".to_owned(),
    };
    Ok(html! {
        tr {
            td class="num first" { strong { (number(mails)) } " " span class="unit" { (if mails == 1 { "message" } else { "messages" }) } }
            td class="side" { span class=(class) { (word) } }
            th scope="row" class="what" {
                a data-row href=(view.path(&example(mails, &kind, group.number("newest_id")?))) {
                    (if error.is_empty() { "no reason given" } else { &error })
                }
                @if let Some(domain) = some(&domain) { small { (domain) } }
            }
            td class="meta" { (code_text) }
            td class="meta" { (breakable(&kind)) }
            td class="meta" { (transport) }
            td class="meta" { (maybe_time(group.maybe("newest")?.as_deref(), clock)) }
            @if view.rights.may_retry_failed {
                td {
                    span class="acts" {
                        a class="button small" href=(view.path(&format!("failures/retry{retry}")))
                            aria-label={ (label) ": " (kind) ", " (transport) } { (label) }
                    }
                }
            }
        }
    })
}

/// The page of the only message of a group, or the failed ones of the kind from the newest of the group on: a search from the
/// newest message of all goes back by 20,000 only, and might find none.
fn example(mails: i64, kind: &str, newest: i64) -> String {
    if mails == 1 {
        return format!("messages/{newest}");
    }
    let before = newest.saturating_add(1).to_string();
    let list = query(&[("state", "error"), ("kind", kind), ("before", &before)]);
    format!("messages{list}")
}
