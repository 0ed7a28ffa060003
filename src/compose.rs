//! Addresses and templates as SQL sees them.
//!
//! The engine lives in the session's memory and holds sources only: values come with each call and go with it.
//!
//! Text comes in as bytes, because it is UTF-8 only where the database is. In any other database what we read
//! and what we write has to be ASCII, and whatever is not is refused as a problem of the message or the template.

use std::cell::RefCell;

use minijinja::Value;
use minijinja::value::Serde;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::address;
use crate::settings;
use crate::template::{self, Engine, Part};

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// Characters of an address that an error quotes.
const QUOTE_MAX: usize = 80;

/// What is said of text that this database cannot exchange with us.
const NOT_ASCII: &str = "holds a character beyond ASCII, for which the database must be in UTF8";

fn is_database_utf8() -> bool {
    // SAFETY: reads a variable of this process that is set before any function can be called.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32 }
}

/// Text of the database, if we can read it.
fn readable(text: &[u8]) -> Option<&str> {
    if is_database_utf8() || text.is_ascii() {
        std::str::from_utf8(text).ok()
    } else {
        None
    }
}

/// What is wrong with the first of these addresses that is none, as in `[2] "a@": …`, counting from 1.
#[pg_extern(sql = false)]
fn _addresses_problem(addresses: Option<Array<&[u8]>>) -> Option<String> {
    addresses?.iter().enumerate().find_map(|(index, found)| {
        let place = index + 1;
        let Some(found) = found else {
            return Some(format!("[{place}] is null"));
        };
        let Some(found) = readable(found) else {
            return Some(format!("[{place}] {NOT_ASCII}"));
        };
        let problem = address::check(found).err()?;
        let quote: String = found.chars().take(QUOTE_MAX).collect();
        Some(format!("[{place}] {quote:?} {problem}"))
    })
}

/// Where to look for a template, best first.
#[pg_extern(sql = false)]
fn _locales(wanted: Option<&[u8]>) -> Vec<String> {
    template::locales(wanted.and_then(readable), &settings::locale())
}

/// What is wrong with one part of a template; `None` when nothing is.
#[pg_extern(sql = false)]
fn _template_problem(part: &[u8], source: &[u8]) -> Result<Option<String>, ErrorReport> {
    let part = readable(part).and_then(Part::named).ok_or_else(|| {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "unknown part of a template",
            function_name!(),
        )
        .set_hint("The parts are subject, body_text and body_html.")
    })?;
    let Some(source) = readable(source) else {
        return Ok(Some(format!("{}: {NOT_ASCII}", part.column())));
    };
    let checked = with_engine(|engine| engine.check(part, source));
    Ok(checked.err().map(|problem| problem.to_string()))
}

/// The rendered parts, or what is wrong. A part without a source stays null, as do all without variables. These are the text of a
/// JSON object: a value of type jsonb that goes deeper than the parser would raise an error before we are called.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _render(
    subject: Option<&[u8]>,
    body_text: Option<&[u8]>,
    body_html: Option<&[u8]>,
    variables: Option<&[u8]>,
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

fn render(
    sources: [Option<&[u8]>; 3],
    variables: Option<&[u8]>,
) -> Result<[Option<String>; 3], String> {
    let Some(variables) = variables else {
        return Ok([None, None, None]);
    };
    let variables = readable(variables).ok_or_else(|| format!("data {NOT_ASCII}"))?;
    if variables.len() > template::VARIABLES_MAX {
        let most = template::VARIABLES_MAX;
        return Err(format!(
            "data has {} octets as JSON, at most {most} can be rendered",
            variables.len()
        ));
    }
    let variables: serde_json::Value = serde_json::from_str(variables)
        .map_err(|_| "data is nested too deeply or holds a number too large".to_owned())?;
    let variables = Value::from(Serde(variables));
    let mut rendered = [None, None, None];
    let parts = [Part::Subject, Part::Text, Part::Html];
    for ((part, source), into) in parts.into_iter().zip(sources).zip(&mut rendered) {
        let Some(source) = source else {
            continue;
        };
        let source = readable(source).ok_or_else(|| format!("{}: {NOT_ASCII}", part.column()))?;
        let made = with_engine(|engine| engine.render(part, source, &variables))
            .map_err(|problem| problem.to_string())?;
        if readable(made.as_bytes()).is_none() {
            return Err(format!("{}: {NOT_ASCII}", part.column()));
        }
        *into = Some(made);
    }
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
