//! Whether all is well, as far as mailroom_problems() and mailroom_status() know.

use maud::{Markup, html};

use super::{Shown, delivery, failures};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure};
use crate::serve::layout::{Page, Section, View};
use crate::serve::words::{maybe_time, number, span};

/// How far back failures are shown.
const SINCE: &str = "24 hours";

/// The page.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>) -> Result<Shown, Failure> {
    let read = view.session.run(Access::Read, async |statements| {
        let problems = include_str!("../../../sql/page/now_problems.sql");
        let problems = statements.all(problems, &[]).await?;
        let status = statements
            .one(include_str!("../../../sql/page/now_status.sql"), &[])
            .await?;
        let transports = delivery::Transports::find(statements).await?;
        let failed = failures::find(view, statements, SINCE).await?;
        Ok((problems, status, transports, failed))
    });
    let ((problems, status, transports, failed), clock) = read.await?;
    let main = html! {
        div class="head" { h1 { "Now" } }
        div id="problems" data-live {
            @for problem in &problems { (shown(view, problem, &clock)?) }
            @if problems.is_empty() { (well(&status)?) }
        }
        (figures(&status)?)
        section class="panel" id="transports" data-live {
            header { h2 { "Transports" } a href=(view.path("delivery")) { "Delivery" } }
            (transports.shown(&clock)?)
        }
        section class="panel" id="failed" data-live {
            header { h2 { "Failures of the last 24 hours" } a href=(view.path("failures")) { "All failures" } }
            (failures::table(view, &failed, SINCE, 5, &clock)?)
        }
    };
    let mut page = Page::new("Now", Section::Now, main);
    page.refresh = 2;
    Ok(Shown::Page(page, clock))
}

fn shown(view: &View<'_>, problem: &Cells, clock: &Clock) -> Result<Markup, Failure> {
    let severity = problem.text("severity")?;
    let (class, word) = match severity.as_str() {
        "critical" => ("verdict critical", "Critical"),
        _ => ("verdict warning", "Warning"),
    };
    let since = problem.maybe("since")?;
    let age = problem
        .seconds("age")?
        .map(|age| format!(" ({})", span(age)));
    let hint = problem.text("hint")?;
    Ok(html! {
        div class=(class) {
            p { span class="hidden" { (word) ": " } (problem.text("detail")?) }
            p {
                (hint)
                @if since.is_some() { " Since " (maybe_time(since.as_deref(), clock)) (age.unwrap_or_default()) "." }
            }
            div class="acts" { a class="button small" href=(view.path("delivery")) { "Delivery" } }
        }
    })
}

fn well(status: &Cells) -> Result<Markup, Failure> {
    let deliverers = status.number("deliverers")?;
    Ok(html! {
        div class="verdict good" {
            p { "All is well, as far as mailroom knows." }
            p {
                "No transport is paused, nothing is late, and "
                (number(deliverers)) (if deliverers == 1 { " deliverer is" } else { " deliverers are" })
                " running. What became of accepted mail is known of transports with events only."
            }
        }
    })
}

/// Counts, up to 10,000 each.
fn figures(status: &Cells) -> Result<Markup, Failure> {
    let more = status.flag("more")?;
    let count = |name: &str| -> Result<String, Failure> {
        let count = status.number(name)?;
        Ok(match more && count >= 10_000 {
            true => "10,000+".to_owned(),
            false => number(count),
        })
    };
    let age = |name: &str| -> Result<(String, bool), Failure> {
        let age = status.seconds(name)?;
        Ok((
            age.map_or_else(|| "–".to_owned(), span),
            age.is_some_and(|age| age > 300.0),
        ))
    };
    let ((oldest_due, is_late), (oldest_waiting, are_late)) =
        (age("oldest_due")?, age("oldest_waiting")?);
    let all = [
        ("waiting", count("scheduled")?, false),
        ("oldest due", oldest_due, is_late),
        ("being sent", count("claimed")?, false),
        ("links waiting", count("waiting")?, false),
        ("oldest link", oldest_waiting, are_late),
        ("failed in 24 h", count("failed_in_24_h")?, false),
        ("bounced in 24 h", count("bounced_in_24_h")?, false),
        ("suppressed in 24 h", count("suppressed_in_24_h")?, false),
    ];
    Ok(html! {
        dl class="figures" id="figures" data-live {
            @for (name, figure, is_bad) in &all {
                div { dt { (name) } dd class=[is_bad.then_some("bad")] { (figure) } }
            }
        }
    })
}
