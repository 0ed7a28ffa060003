//! Templates and their preview.

use maud::html;
use tokio_postgres::types::Type;

use super::Shown;
use super::preview::{Around, Contents, panel, rendered};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Failure};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View, empty};
use crate::serve::site::encoded;

async fn all(view: &View<'_>) -> Result<(Vec<Cells>, crate::serve::connection::Clock), Failure> {
    let statement = include_str!("../../../sql/page/templates.sql");
    view.session
        .run(Access::Read, async |statements| {
            let none: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 0] = [];
            statements.all(statement, &none).await
        })
        .await
}

/// The list.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(view: &View<'_>) -> Result<Shown, Failure> {
    let (rows, clock) = all(view).await?;
    let main = html! {
        div class="head" { h1 { "Templates" } }
        section class="panel" aria-label="Templates" {
            @if rows.is_empty() {
                (empty("No templates", &html! { "A row of the table templates makes the mail of its kind." }))
            } @else {
                table class="cards" {
                    thead {
                        tr {
                            th scope="col" { "Kind" }
                            th scope="col" { "Locale" }
                            th scope="col" { "Subject" }
                            th scope="col" { "Bodies" }
                            th scope="col" { "From" }
                        }
                    }
                    tbody {
                        @for row in &rows {
                            @let (kind, locale) = (row.text("kind")?, row.text("locale")?);
                            @let path = format!("templates/{}{}", encoded(&kind), query(&[("locale", &locale)]));
                            @let bodies = [(row.flag("has_text")?, "text"), (row.flag("has_html")?, "HTML")];
                            @let bodies: Vec<&str> = bodies.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
                            tr {
                                th scope="row" class="first" { a class="any" data-row href=(view.path(&path)) { (kind) } }
                                td data-label="locale" { (locale) }
                                td data-label="subject" { span class="any" { (row.text("subject")?) } }
                                td data-label="bodies" { (bodies.join(", ")) }
                                td data-label="from" { (if row.flag("builtin")? { "built in" } else { "table" }) }
                            }
                        }
                    }
                }
            }
        }
    };
    Ok(Shown::Page(
        Page::new("Templates", Section::Templates, main),
        clock,
    ))
}

/// What a template makes of sample values.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn preview(view: &View<'_>, kind: &str, form: &Form) -> Result<Shown, Failure> {
    let (rows, clock) = all(view).await?;
    let mut locales = Vec::new();
    for row in &rows {
        if row.text("kind")? == kind {
            locales.push(row.text("locale")?);
        }
    }
    if locales.is_empty() {
        let main = html! {
            div class="verdict" {
                h1 { "There is no template of this kind" }
                div class="acts" { a class="button" href=(view.path("templates")) { "Templates" } }
            }
        };
        let page = Page::new("No template", Section::Templates, main);
        return Ok(Shown::NotFound(page, clock));
    }
    let chosen = form.get("locale").or(locales.first().map(String::as_str));
    let data = form.get("data").unwrap_or_default();
    let (contents, fault) = match rendered(view, kind, form.get("data"), chosen).await? {
        Ok(contents) => (contents, None),
        Err(fault) => (Contents::default(), Some(fault)),
    };
    let locale = chosen.unwrap_or_default();
    let path = format!("templates/{}", encoded(kind));
    let frame = query(&[("locale", locale), ("data", data)]);
    let frame = view.path(&format!("{path}/html{frame}"));
    let around = Around {
        page: &path,
        frame: &frame,
        kept: &[("locale", locale), ("data", data)],
        extra: &[],
        from: None,
        note: Some("Links and codes are samples."),
        fault: fault.as_ref(),
    };
    let main = html! {
        div class="head" {
            div { h1 class="any" { (kind) } p { "Locale " (locale) } }
            nav class="tabs" aria-label="Locale" {
                @for known in &locales {
                    a href=(view.path(&format!("{path}{}", query(&[("locale", known)]))))
                        aria-current=[(known == locale).then_some("true")] { (known) }
                }
            }
        }
        (panel(view, form, &contents, &around))
        section class="panel" {
            header { h2 { "With other values" } }
            div class="body" {
                form class="fields" action=(view.path(&path)) {
                    input type="hidden" name="locale" value=(locale);
                    div class="field" {
                        label for="f-data" { "Variables, a JSON object" }
                        textarea id="f-data" name="data" rows="4" spellcheck="false"
                            placeholder="{\"name\": \"Ann\"}" { (data) }
                    }
                    button { "Show" }
                }
            }
        }
    };
    Ok(Shown::Page(
        Page::new(kind, Section::Templates, main),
        clock,
    ))
}
