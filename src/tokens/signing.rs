//! The SQL functions that sign and verify tokens.

use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use mailroom_core::token::key_file::{KeyFileError, KeyRing};
use mailroom_core::token::unsubscribe::{self, Unsubscriber};
use mailroom_core::token::{self, Code, Parsed, Purpose, SECRET_LEN};

use super::errors::Error;
use super::key_file::key_ring;

/// An argument of type text, in the encoding of the database. Text that is not UTF-8 must not raise an error: it is
/// not a token, code or action.
pub type Text<'a> = &'a [u8];

/// Returns the text as UTF-8. Every valid token, code and action is ASCII, which is the same in each encoding. Text
/// that is not UTF-8 becomes "?", which is none of them.
pub fn readable(text: Text<'_>) -> &str {
    std::str::from_utf8(text).unwrap_or("?")
}

#[pg_extern(sql = false)]
fn _sign(
    action: Option<Text<'_>>,
    secret: Option<&[u8]>,
    code: Option<Text<'_>>,
) -> Result<String, ErrorReport> {
    let (_, token) = signed(action.map(readable), secret, code.map(readable))?;
    Ok(token)
}

/// The public form of [`_sign`]; a SQL function that calls it would make secrets parameters of a statement.
#[pg_extern(sql = false)]
fn mailroom_sign(
    action: Option<pg_sys::Oid>,
    secret: Option<&[u8]>,
    code: Option<Text<'_>>,
) -> Result<String, ErrorReport> {
    let action = action.map(label);
    let (_, token) = signed(action.as_deref(), secret, code.map(readable))?;
    Ok(token)
}

/// Returns the label of an enum value.
fn label(value: pg_sys::Oid) -> String {
    pgrx::enum_helper::lookup_enum_by_oid(value).0
}

/// Returns the purpose and the signed token of this secret.
///
/// # Errors
/// 22004 if an argument is NULL, 22023 if it is invalid, and those of [`verifier`].
pub fn signed<'a>(
    action: Option<&str>,
    secret: Option<&[u8]>,
    code: Option<&'a str>,
) -> Result<(Purpose<'a>, String), ErrorReport> {
    let purpose = purpose(action.ok_or(Error::Null("action"))?, code)?;
    let secret = secret.ok_or(Error::Null("secret"))?;
    let secret: &[u8; SECRET_LEN] = secret
        .try_into()
        .map_err(|_| Error::SecretLength(secret.len()))?;
    let ring = key_ring().map_err(Error::from)?;
    Ok((purpose, token::sign(ring.signing(), purpose, secret)))
}

#[pg_extern(sql = false)]
fn _verify(
    token: Option<Text<'_>>,
    action: Option<Text<'_>>,
    code: Option<Text<'_>>,
) -> Result<bool, ErrorReport> {
    verify(token, action.map(readable), code.map(readable))
}

/// The public form of [`_verify`], as [`mailroom_sign`] is of [`_sign`].
#[pg_extern(sql = false)]
fn mailroom_verify(
    token: Option<Text<'_>>,
    action: Option<pg_sys::Oid>,
    code: Option<Text<'_>>,
) -> Result<bool, ErrorReport> {
    verify(token, action.map(label).as_deref(), code.map(readable))
}

fn verify(
    token: Option<Text<'_>>,
    action: Option<&str>,
    code: Option<&str>,
) -> Result<bool, ErrorReport> {
    // First, so that a server without keys reports that for any argument.
    let verifier = verifier()?;
    let (Some(token), Some(action)) = (token, action) else {
        return Ok(false);
    };
    let Ok(purpose) = purpose(action, code) else {
        return Ok(false);
    };
    Ok(parse(token).is_some_and(|token| verifier.accepts(&token, purpose)))
}

/// All keys in force, to verify with.
pub struct Verifier(Rc<KeyRing>);

/// Returns the keys to verify with.
///
/// # Errors
/// 58P01, 42501, F0000 or 58030, by the problem of the key file, if there are no keys.
pub fn verifier() -> Result<Verifier, ErrorReport> {
    Ok(Verifier(key_ring().map_err(Error::from)?))
}

impl Verifier {
    /// As [`Parsed::is_genuine`].
    pub fn accepts(&self, token: &Parsed, purpose: Purpose<'_>) -> bool {
        token.is_genuine(self.0.verifying(), purpose)
    }

    /// As [`unsubscribe::verify`].
    pub fn unsubscriber(&self, token: Text<'_>) -> Option<Unsubscriber> {
        unsubscribe::verify(self.0.verifying(), readable(token))
    }
}

/// Returns the token by which an address unsubscribes from a list; `None` if one of the two is not valid.
///
/// # Errors
/// A [`KeyFileError`] if there are no keys.
pub fn unsubscribe_token(list: &str, address: &str) -> Result<Option<String>, KeyFileError> {
    let ring = key_ring()?;
    Ok(unsubscribe::sign(ring.signing(), list, address))
}

/// As [`token::parse`].
pub fn parse(token: Text<'_>) -> Option<Parsed> {
    token::parse(readable(token))
}

/// Returns the code in an argument; `None` if it is not five digits.
pub fn code(text: Text<'_>) -> Option<Code<'_>> {
    Code::new(readable(text))
}

/// Returns the purpose that an action and a code stand for; the code is used for recoveries only.
///
/// # Errors
/// 22004 if the code of a recovery is NULL, 22023 if action or code is invalid.
pub fn purpose<'a>(action: &str, code: Option<&'a str>) -> Result<Purpose<'a>, Error> {
    match action {
        "activation" => Ok(Purpose::Activation),
        "password_recovery" => {
            let digits = code.ok_or(Error::Null("code"))?;
            let code = Code::new(digits).ok_or_else(|| Error::Code(digits.chars().count()))?;
            Ok(Purpose::PasswordRecovery { code })
        }
        _ => Err(Error::Action),
    }
}
