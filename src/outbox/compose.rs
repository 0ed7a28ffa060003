//! The SQL functions for addresses and templates.
//!
//! Each session has one template engine, which keeps sources and their compiled form, but no values of a call.
//!
//! Text is passed as bytes, because it is UTF-8 only if the encoding of the database is; [`encoding`] converts it.
//! Text that cannot be converted is reported as a problem of the message or the template.

use std::borrow::Cow;
use std::cell::RefCell;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::encoding;
use crate::settings;
use mailroom_core::line;
use mailroom_core::template::{self, Engine, Part, Serde, Value};

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// The problem of text that cannot be converted to UTF-8.
const NOT_READ: &str = "holds bytes that are no characters in the database's encoding";

/// The problem of text that cannot be converted to the database's encoding.
const NOT_WRITTEN: &str = "holds a character that the database's encoding does not have";

/// Converts text of the database to UTF-8; `None` if that is not possible.
fn readable(text: &[u8]) -> Option<Cow<'_, str>> {
    encoding::to_utf8(text)
}

/// Converts text to the database's encoding, with a question mark for each character that it does not have.
fn told(text: &str) -> Vec<u8> {
    encoding::from_utf8_lossy(text).into_owned()
}

/// Returns why text is not one line without control characters; `None` if it is. In text that cannot be converted to
/// UTF-8, only those of ASCII are known.
#[pg_extern(sql = false)]
fn _line_problem(text: &[u8]) -> Option<String> {
    let found = match readable(text) {
        Some(text) => line::first_control(&text),
        None => text
            .iter()
            .copied()
            .find(u8::is_ascii_control)
            .map(char::from),
    };
    found.map(|found| format!("contains the control character {}", line::Named(found)))
}

/// Returns text in which control and invisible characters are written as `<U+200B>`. In text that cannot be converted to
/// UTF-8, only control characters of ASCII are.
#[pg_extern(sql = false)]
fn _visible(text: &[u8]) -> Vec<u8> {
    let Some(read) = readable(text) else {
        let visible = |byte: &u8| match byte {
            byte if byte.is_ascii_control() => format!("<U+{byte:04X}>").into_bytes(),
            byte => vec![*byte],
        };
        return text.iter().flat_map(visible).collect();
    };
    told(&line::visible(&read))
}

/// Returns the locales in which to look for a template, best first.
#[pg_extern(sql = false)]
fn _locales(wanted: Option<&[u8]>) -> Vec<String> {
    // A tag that is not ASCII is ignored: no template has one, and not every encoding can represent it.
    let wanted = wanted.and_then(readable);
    template::locales(
        wanted.as_deref().filter(|tag| tag.is_ascii()),
        &settings::locale(),
    )
}

/// Returns the problem of one part of a template; `None` if it is valid.
///
/// # Errors
/// 22023 for an unknown part.
#[pg_extern(sql = false)]
fn _template_problem(part: &[u8], source: &[u8]) -> Result<Option<Vec<u8>>, ErrorReport> {
    let part = readable(part)
        .and_then(|part| Part::named(&part))
        .ok_or_else(|| {
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "unknown part of a template",
                function_name!(),
            )
            .set_hint("The parts are subject, body_text and body_html.")
        })?;
    let Some(source) = readable(source) else {
        return Ok(Some(told(&format!("{}: {NOT_READ}", part.column()))));
    };
    let checked = with_engine(|engine| engine.check(part, &source));
    Ok(checked.err().map(|problem| told(&problem.to_string())))
}

/// Returns the rendered parts, or an error. A part without a source is NULL, as are all parts without variables.
/// `variables` is the text of a JSON object: a value of type jsonb that is nested more deeply than the parser allows
/// would raise an error before this function is called.
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
        name!(subject, Option<Vec<u8>>),
        name!(body_text, Option<Vec<u8>>),
        name!(body_html, Option<Vec<u8>>),
        name!(error, Option<Vec<u8>>),
    ),
> {
    let row = match render([subject, body_text, body_html], variables) {
        Ok([subject, body_text, body_html]) => (subject, body_text, body_html, None),
        Err(error) => (None, None, None, Some(told(&error))),
    };
    TableIterator::once(row)
}

fn render(
    sources: [Option<&[u8]>; 3],
    variables: Option<&[u8]>,
) -> Result<[Option<Vec<u8>>; 3], String> {
    let Some(variables) = variables else {
        return Ok([None, None, None]);
    };
    let variables = readable(variables).ok_or_else(|| format!("data {NOT_READ}"))?;
    if variables.len() > template::VARIABLES_MAX {
        let most = template::VARIABLES_MAX;
        return Err(format!(
            "data has {} octets as JSON, at most {most} can be rendered",
            variables.len()
        ));
    }
    let variables: serde_json::Value = serde_json::from_str(&variables)
        .map_err(|_| "data is nested too deeply or holds a number too large".to_owned())?;
    let variables = Value::from(Serde(variables));
    let mut rendered = [None, None, None];
    let parts = [Part::Subject, Part::Text, Part::Html];
    for ((part, source), into) in parts.into_iter().zip(sources).zip(&mut rendered) {
        let Some(source) = source else {
            continue;
        };
        let source = readable(source).ok_or_else(|| format!("{}: {NOT_READ}", part.column()))?;
        let made = with_engine(|engine| engine.render(part, &source, &variables))
            .map_err(|problem| problem.to_string())?;
        let made = encoding::from_utf8(&made)
            .ok_or_else(|| format!("{}: {NOT_WRITTEN}", part.column()))?;
        *into = Some(made.into_owned());
    }
    Ok(rendered)
}

/// Returns the templates that are built into the library.
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
