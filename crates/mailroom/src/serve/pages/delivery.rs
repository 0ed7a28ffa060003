//! Worker, transports, deliverers.

use maud::{Markup, html};

use super::{Done, Shown};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::words::{deliverer, maybe_time, number, span};

/// The transports, with what is due for each.
pub struct Transports {
    rows: Vec<Cells>,
    due: Vec<Cells>,
}

impl Transports {
    /// # Errors
    /// The statement failed.
    pub async fn find(statements: &Statements<'_>) -> Result<Self, Failure> {
        let rows = include_str!("../../../sql/page/transports.sql");
        let due = include_str!("../../../sql/page/transports_due.sql");
        Ok(Self {
            rows: statements.all(rows, &[]).await?,
            due: statements.all(due, &[]).await?,
        })
    }

    /// How much is due for a transport, and since when.
    fn due(&self, name: &str) -> Result<(String, String), Failure> {
        for row in &self.due {
            if row.text("transport")? == name {
                let more = if row.flag("more")? { "+" } else { "" };
                let oldest = row.seconds("oldest_due")?;
                let due = format!("{}{more}", number(row.number("due")?));
                return Ok((due, oldest.map(span).unwrap_or_default()));
            }
        }
        Ok(("0".to_owned(), String::new()))
    }

    /// Mail for transports that no deliverer has; that of clients is under the empty name.
    fn orphans(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for row in &self.due {
            let name = row.text("transport")?;
            let mut known = Vec::new();
            for row in &self.rows {
                known.push(row.text("name")?);
            }
            if !known.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The table.
    ///
    /// # Errors
    /// A column cannot be read.
    pub fn shown(&self, clock: &Clock) -> Result<Markup, Failure> {
        let orphans = self.orphans()?;
        if self.rows.is_empty() && orphans.is_empty() {
            let why = html! {
                "No deliverer has published any. The transports file is named by mailroom.transports_file, or by "
                code { "mailroom send --transports" } "."
            };
            return Ok(empty("No transports", &why));
        }
        Ok(html! {
            table class="cards" {
                thead {
                    tr {
                        th scope="col" { "Transport" }
                        th scope="col" { "State" }
                        th scope="col" { "Since" }
                        th scope="col" class="num" { "Due" }
                        th scope="col" class="num" { "Oldest due" }
                        th scope="col" { "Deliverers" }
                    }
                }
                tbody {
                    @for row in &self.rows { (self.row(row, clock)?) }
                    @for name in &orphans {
                        @let (due, oldest) = self.due(name)?;
                        tr {
                            th scope="row" class="first" {
                                @if name.is_empty() { "(none) " small { "clients" } } @else { (name) }
                            }
                            td {
                                @if name.is_empty() { span class="state" { "clients deliver" } }
                                @else { span class="state paused" { "no deliverer has it" } }
                            }
                            td class="meta" {}
                            td class="meta num" { (due) span class="unit" { " due" } }
                            td class="meta num" { @if !oldest.is_empty() { span class="unit" { "oldest " } (oldest) } }
                            td class="meta" {}
                        }
                    }
                }
            }
        })
    }

    fn row(&self, row: &Cells, clock: &Clock) -> Result<Markup, Failure> {
        let name = row.text("name")?;
        let (due, oldest) = self.due(&name)?;
        let (state, best) = (row.text("state")?, row.text("best_state")?);
        let (reason, provider) = (row.text("reason")?, row.text("provider")?);
        let probe = row.maybe("next_probe_at")?;
        let deliverers: Vec<String> = row
            .list("deliverer_names")?
            .iter()
            .map(|name| deliverer(name))
            .collect();
        Ok(html! {
            tr {
                th scope="row" class="first" { (name) @if provider != name { small { (provider) } } }
                td {
                    span class={ "state " (state) } { (state) }
                    @if !reason.is_empty() { span class="why" { (reason) } }
                    @if best != state { span class="why" { "not of all deliverers: " (best) " of another" } }
                    @if probe.is_some() { span class="why" { "next probe at " (maybe_time(probe.as_deref(), clock)) } }
                }
                td class="meta" { span class="unit" { "since " } (maybe_time(row.maybe("since")?.as_deref(), clock)) }
                td class="meta num" { (due) span class="unit" { " due" } }
                td class="meta num" { @if !oldest.is_empty() { span class="unit" { "oldest " } (oldest) } }
                td class="meta any" { (deliverers.join(", ")) }
            }
        })
    }
}

/// The page.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>) -> Result<Shown, Failure> {
    let read = view.session.run(Access::Read, async |statements| {
        let status = statements
            .one(include_str!("../../../sql/page/now_status.sql"), &[])
            .await?;
        let pause = statements
            .maybe(include_str!("../../../sql/page/pauses.sql"), &[])
            .await?;
        Ok((status, pause, Transports::find(statements).await?))
    });
    let ((status, pause, transports), clock) = read.await?;
    let main = html! {
        div class="head" { h1 { "Delivery" } }
        (worker(view, &status, pause.as_ref(), &clock)?)
        section class="panel" id="transports" data-live {
            header { h2 { "Transports" } }
            (transports.shown(&clock)?)
            footer { p { "As the deliverers published them last." } }
        }
    };
    Ok(Shown::Page(
        Page::new("Delivery", Section::Delivery, main),
        clock,
    ))
}

fn worker(
    view: &View<'_>,
    status: &Cells,
    pause: Option<&Cells>,
    clock: &Clock,
) -> Result<Markup, Failure> {
    let pid = status.maybe_number("worker_pid")?;
    let (class, word) = match (pause.is_some(), pid.is_some()) {
        (true, _) => ("state paused", "paused"),
        (false, true) => ("state healthy", "running"),
        (false, false) => ("state slowed", "no worker"),
    };
    // A screen that shows no addresses names this one neither.
    let redirected = match (status.maybe("redirect_to")?, view.rights.sees_addresses) {
        (Some(_), false) => Some("another address (mailroom.redirect_to)".to_owned()),
        (to, _) => to,
    };
    let facts = [
        ("Problem", status.maybe("worker_problem")?),
        ("Transports file", status.maybe("transports_error")?),
        ("Budget", status.maybe("budget")?),
        ("Redirected to", redirected),
    ];
    let next_for = status.text("next_wake_for")?;
    Ok(html! {
        section class="panel" id="worker" data-live {
            header {
                h2 { "Worker" }
                span class=(class) { (word) }
                span class="acts" {
                    @if view.rights.may_wake { (view.button("delivery/wake", "small", "Wake", &[])) }
                    @if view.rights.may_pause {
                        @if pause.is_some() { (view.button("delivery/resume", "small", "Resume", &[])) }
                        @else {
                            (view.question("delivery/pause", "Pause", "No further mail is sent, by the worker and by mailroom send, until it is resumed.", &[]))
                        }
                    }
                }
            }
            div class="body" {
                dl class="facts" {
                    @if let Some(pause) = pause {
                        dt { "Paused" }
                        dd {
                            "by " (pause.text("paused_by")?) " since " (maybe_time(pause.maybe("since")?.as_deref(), clock))
                            @if pause.flag("is_copy")? { ": this is a copy of a database whose mail is sent elsewhere" }
                        }
                    }
                    dt { "Process" }
                    dd {
                        @if let Some(pid) = pid { (pid) ", since " (maybe_time(status.maybe("worker_since")?.as_deref(), clock)) }
                        @else { "none: mail is sent by " code { "mailroom send" } " and by clients only" }
                    }
                    dt { "Deliverers" } dd { (number(status.number("deliverers")?)) }
                    dt { "Last batch" } dd { (maybe_time(status.maybe("last_batch_at")?.as_deref(), clock)) }
                    dt { "Next wake" }
                    dd {
                        (maybe_time(status.maybe("next_wake_at")?.as_deref(), clock))
                        @if !next_for.is_empty() { ", " (next_for) }
                    }
                    dt { "Errors in a row" } dd { (number(status.number("errors_in_a_row")?)) }
                    @for (name, value) in facts {
                        @if let Some(value) = value.filter(|value| !value.is_empty()) { dt { (name) } dd { bdi { (value) } } }
                    }
                }
            }
        }
    })
}

/// Pauses the worker.
///
/// # Errors
/// As all that is done.
pub async fn pause(statements: &Statements<'_>) -> Result<Done, Failure> {
    let row = statements
        .one(include_str!("../../../sql/page/act_pause.sql"), &[])
        .await?;
    Ok(match row.flag("done")? {
        true => Done::new(
            "paused the worker",
            "Paused. Requests in flight end; no further mail is sent.",
        ),
        false => Done::nothing("did not pause the worker", "It was paused before.", ""),
    })
}

/// Ends the pause of the worker.
///
/// # Errors
/// As all that is done.
pub async fn resume(statements: &Statements<'_>) -> Result<Done, Failure> {
    let row = statements
        .one(include_str!("../../../sql/page/act_resume.sql"), &[])
        .await?;
    Ok(match row.flag("done")? {
        true => Done::new("resumed the worker", "Resumed."),
        false => Done::nothing("did not resume the worker", "It was not paused.", ""),
    })
}

/// Wakes all deliverers.
///
/// # Errors
/// As all that is done.
pub async fn wake(statements: &Statements<'_>) -> Result<Done, Failure> {
    let row = statements
        .one(include_str!("../../../sql/page/act_wake.sql"), &[])
        .await?;
    Ok(match row.flag("done")? {
        true => Done::new(
            "woke the worker",
            "Woken. Paused transports are probed now.",
        ),
        false => Done::new(
            "woke other deliverers",
            "There is no worker. Other deliverers that listen were told.",
        ),
    })
}
