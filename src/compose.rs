//! Addresses and templates as SQL sees them.
//!
//! The engine lives in the session's memory and holds sources only: values come with each call and go with it.

use std::cell::RefCell;

use minijinja::Value;
use minijinja::value::Serde;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::address;
use crate::settings;
use crate::template::{self, Engine, Part, Problem};

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// Characters of an address that an error quotes.
const QUOTE_MAX: usize = 80;

/// What is wrong with the first of these addresses that is none, as in `[2] "a@": …`, counting from 1.
#[pg_extern(sql = false)]
fn _addresses_problem(addresses: Option<Array<&str>>) -> Option<String> {
    addresses?.iter().enumerate().find_map(|(index, found)| {
        let place = index + 1;
        let Some(found) = found else {
            return Some(format!("[{place}] is null"));
        };
        let problem = address::check(found).err()?;
        let quote: String = found.chars().take(QUOTE_MAX).collect();
        Some(format!("[{place}] {quote:?} {problem}"))
    })
}

/// Where to look for a template, best first.
#[pg_extern(sql = false)]
fn _locales(wanted: Option<&str>) -> Vec<String> {
    template::locales(wanted, &settings::locale())
}

/// What is wrong with one part of a template; `None` when nothing is.
#[pg_extern(sql = false)]
fn _template_problem(part: &str, source: &str) -> Result<Option<String>, ErrorReport> {
    let part = Part::named(part).ok_or_else(|| {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "unknown part of a template",
            function_name!(),
        )
        .set_hint("The parts are subject, body_text and body_html.")
    })?;
    let checked = with_engine(|engine| engine.check(part, source));
    Ok(checked.err().map(|problem| problem.to_string()))
}

/// The rendered parts, or what is wrong. A part without a source stays null. `variables` is the text of a JSON
/// object: a value of type jsonb that goes deeper than the parser would raise an error before we are called.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _render(
    subject: Option<&str>,
    body_text: Option<&str>,
    body_html: Option<&str>,
    variables: &str,
) -> TableIterator<
    'static,
    (
        name!(subject, Option<String>),
        name!(body_text, Option<String>),
        name!(body_html, Option<String>),
        name!(error, Option<String>),
    ),
> {
    let row = match render([subject, body_text, body_html], variables) {
        Ok([subject, body_text, body_html]) => (subject, body_text, body_html, None),
        Err(error) => (None, None, None, Some(error)),
    };
    TableIterator::once(row)
}

fn render(sources: [Option<&str>; 3], variables: &str) -> Result<[Option<String>; 3], String> {
    let variables: serde_json::Value = serde_json::from_str(variables)
        .map_err(|_| "data is nested too deeply or holds a number too large".to_owned())?;
    let variables = Value::from(Serde(variables));
    let mut rendered = [None, None, None];
    let parts = [Part::Subject, Part::Text, Part::Html];
    with_engine(|engine| {
        for ((part, source), into) in parts.into_iter().zip(sources).zip(&mut rendered) {
            if let Some(source) = source {
                *into = Some(engine.render(part, source, &variables)?);
            }
        }
        Ok(())
    })
    .map_err(|problem: Problem| problem.to_string())?;
    Ok(rendered)
}

/// The templates that come with the library.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _builtin_templates() -> TableIterator<
    'static,
    (
        name!(kind, &'static str),
        name!(locale, &'static str),
        name!(subject, &'static str),
        name!(body_text, &'static str),
        name!(body_html, &'static str),
    ),
> {
    TableIterator::new(template::BUILTIN.iter().map(|builtin| {
        (
            builtin.kind,
            template::BUILTIN_LOCALE,
            builtin.subject,
            builtin.body_text,
            builtin.body_html,
        )
    }))
}

fn with_engine<T>(work: impl FnOnce(&mut Engine) -> T) -> T {
    ENGINE.with_borrow_mut(|engine| work(engine.get_or_insert_with(Engine::new)))
}
