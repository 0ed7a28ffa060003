//! Links: the SQL functions that make the secrets in token mail, and read them back.
//!
//! A token is signed inside the statement that stores or returns it, and a link that a client passes is converted to
//! the 32 bytes of its secret before a nested statement uses it, because extensions that log statements log their
//! parameters too (invariant I7).

use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::{Map, Value};

use crate::settings;
use mailroom_core::token::{Purpose, TOKEN_LEN};

use super::signing::{self, Text};

/// Returns the secrets of a token mail: the signed token, the code of a recovery and, with a base URL, the link.
fn carried(purpose: Purpose<'_>, token: String, code: Option<String>) -> JsonB {
    let mut secrets = Map::new();
    if let Some(base) = settings::link_base_url() {
        let path = purpose.path();
        secrets.insert(
            "link".to_owned(),
            Value::String(format!("{base}{path}?token={token}")),
        );
    }
    secrets.insert("token".to_owned(), Value::String(token));
    // An activation needs no code.
    if let (Purpose::PasswordRecovery { .. }, Some(code)) = (purpose, code) {
        secrets.insert("code".to_owned(), Value::String(code));
    }
    JsonB(Value::Object(secrets))
}

#[pg_extern(sql = false)]
fn _secrets(
    action: Option<Text<'_>>,
    secret: Option<&[u8]>,
    code: Option<Text<'_>>,
) -> Result<JsonB, ErrorReport> {
    let digits = code.map(signing::readable);
    let (purpose, token) = signing::signed(action.map(signing::readable), secret, digits)?;
    Ok(carried(purpose, token, digits.map(str::to_owned)))
}

#[pg_extern(sql = false)]
fn _sample_secrets(kind: Option<Text<'_>>) -> Option<JsonB> {
    let code = "01234";
    let purpose = signing::purpose(signing::readable(kind?), Some(code)).ok()?;
    Some(carried(
        purpose,
        "A".repeat(TOKEN_LEN),
        Some(code.to_owned()),
    ))
}

#[pg_extern(sql = false)]
fn _link_secret(link: Option<Text<'_>>) -> Result<Option<Vec<u8>>, ErrorReport> {
    // First, so that a server without keys reports that for any argument.
    signing::verifier()?;
    Ok(link
        .and_then(signing::parse)
        .map(|token| token.secret().to_vec()))
}

/// Returns text without white space at its ends: all of Unicode's if the text is UTF-8, otherwise that of ASCII.
#[pg_extern(sql = false)]
fn _trimmed(pasted: Text<'_>) -> Vec<u8> {
    match std::str::from_utf8(pasted) {
        Ok(text) => text.trim().into(),
        Err(_) => pasted.trim_ascii().into(),
    }
}

#[pg_extern(sql = false)]
fn _is_code(given: Option<Text<'_>>, code: Option<Text<'_>>) -> Option<bool> {
    let (given, code) = (signing::code(given?)?, signing::code(code?)?);
    Some(code.is(given))
}
