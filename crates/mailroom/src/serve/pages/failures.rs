//! What failed, by reason.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Done, Shown};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View, empty, some};
use crate::serve::words::{breakable, maybe_time, number};

/// How far back one can look: intervals of PostgreSQL.
const SPANS: [&str; 4] = ["1 hour", "24 hours", "7 days", "30 days"];
const USUAL: &str = "24 hours";

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
                @for group in groups.iter().take(most) { (row(view, group, since, clock)?) }
            }
        }
    })
}

fn row(view: &View<'_>, group: &Cells, since: &str, clock: &Clock) -> Result<Markup, Failure> {
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
    let list = query(&[
        ("state", "error"),
        ("kind", &kind),
        ("transport", if outcome.is_some() { &transport } else { "" }),
    ]);
    let code_text = code.map(|code| code.to_string()).unwrap_or_default();
    let retry = query(&[
        ("since", since),
        ("kind", &kind),
        // Of mail that ended without an attempt, the transport is not that of an attempt.
        ("transport", if outcome.is_some() { &transport } else { "" }),
        ("outcome", outcome.as_deref().unwrap_or_default()),
        ("code", &code_text),
    ]);
    let label = format!("Retry {}…", number(mails));
    Ok(html! {
        tr {
            td class="num first" { strong { (number(mails)) } " " span class="unit" { (if mails == 1 { "message" } else { "messages" }) } }
            td class="side" { span class=(class) { (word) } }
            th scope="row" class="what" {
                a data-row href=(view.path(&format!("messages{list}"))) { (if error.is_empty() { "no reason given" } else { &error }) }
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

/// The conditions of a retry of many.
struct Conditions {
    kind: Option<String>,
    transport: Option<String>,
    outcome: Option<String>,
    code: Option<i32>,
    since: &'static str,
}

impl Conditions {
    fn of(form: &Form) -> Self {
        let text = |name: &str| form.get(name).map(str::to_owned);
        Self {
            kind: text("kind"),
            transport: text("transport"),
            outcome: text("outcome"),
            code: form
                .number("code")
                .and_then(|code| i32::try_from(code).ok()),
            since: since(form),
        }
    }

    /// Runs a statement about them; returns its number of mails.
    async fn run(&self, statements: &Statements<'_>, statement: &str) -> Result<i64, Failure> {
        let parameters = [
            (&self.kind as _, Type::TEXT),
            (&self.transport as _, Type::TEXT),
            (&self.outcome as _, Type::TEXT),
            (&self.code as _, Type::INT4),
            (&self.since as _, Type::TEXT),
        ];
        statements
            .one(statement, &parameters)
            .await?
            .number("mails")
    }
}

/// What a retry of many would do, and the button that does it.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn confirm(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let conditions = Conditions::of(form);
    let statement = include_str!("../../../sql/page/retryable.sql");
    let read = view.session.run(Access::Read, async |statements| {
        conditions.run(statements, statement).await
    });
    let (mails, clock) = read.await?;
    let count = match mails {
        10_001.. => "more than 10,000".to_owned(),
        _ => number(mails),
    };
    let code = conditions.code.map(|code| code.to_string());
    let facts = [
        ("Kind", &conditions.kind),
        ("Transport", &conditions.transport),
        ("Outcome", &conditions.outcome),
        ("Code", &code),
    ];
    let of = |value: &Option<String>| value.clone().unwrap_or_default();
    let fields = [
        ("kind", of(&conditions.kind)),
        ("transport", of(&conditions.transport)),
        ("outcome", of(&conditions.outcome)),
        ("code", of(&code)),
        ("since", conditions.since.to_owned()),
        // To the list, not to this question again.
        ("back", "failures".to_owned()),
    ];
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let main = html! {
        div class="head" { h1 { "Retry " (count) (if mails == 1 { " message?" } else { " messages?" }) } }
        section class="panel" {
            div class="body" {
                p {
                    (count) (if mails == 1 { " message matches" } else { " messages match" })
                    " and would be due now. Mail whose item key has been taken since, or whose link has ended, is left out."
                    @if mails > 10_000 { " 10,000 are retried at a time." }
                }
                dl class="facts" {
                    @for (name, value) in facts { @if let Some(value) = value { dt { (name) } dd { (value) } } }
                    dt { "Failed in the last" } dd { (conditions.since) }
                }
                div class="acts" {
                    @if mails > 0 { (view.button("failures/retry", "main", &format!("Retry {}", number(mails.min(10_000))), &fields)) }
                    a class="button" href=(view.path("failures")) { "Back" }
                }
            }
        }
    };
    let mut page = Page::new("Retry", Section::Failures, main);
    page.refresh = 0;
    Ok(Shown::Page(page, clock))
}

/// Retries many.
///
/// # Errors
/// As all that is done.
pub async fn retry(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let statement = include_str!("../../../sql/page/act_retry_failed.sql");
    let mails = Conditions::of(form).run(statements, statement).await?;
    let message = match mails {
        1 => "1 message is due now.".to_owned(),
        _ => format!("{} messages are due now.", number(mails)),
    };
    Ok(Done::new(
        format!("retried {mails} failed messages"),
        message,
    ))
}
