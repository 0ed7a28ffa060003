//! Signing and verifying tokens, as SQL sees them.

use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use mailroom_core::token::key_file::KeyRing;
use mailroom_core::token::{self, Code, Parsed, Purpose, SECRET_LEN};

use super::errors::Error;
use super::key_file::key_ring;

/// An argument of type text. It comes in the encoding of the database, and must not fail for that: what is no UTF-8
/// is no token, code or action either.
pub type Text<'a> = &'a [u8];

/// As UTF-8: every valid token, code and action is ASCII, which is the same in each encoding. Other text becomes "?",
/// which is none of them.
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

/// The public form of [`_sign`]: not a SQL function around it, whose arguments would be parameters of a statement.
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

/// The label of an enum's value.
fn label(value: pg_sys::Oid) -> String {
    pgrx::enum_helper::lookup_enum_by_oid(value).0
}

/// The signed token of this secret, and what it is for.
///
/// # Errors
/// 22004 when an argument is missing, 22023 when it has the wrong shape; as [`verifier`].
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

/// All keys that are in force, to verify with.
pub struct Verifier(Rc<KeyRing>);

/// The keys to verify with.
///
/// # Errors
/// 58P01, 42501, F0000 or 58030 when there are none, as the key file has it.
pub fn verifier() -> Result<Verifier, ErrorReport> {
    Ok(Verifier(key_ring().map_err(Error::from)?))
}

impl Verifier {
    /// As [`Parsed::is_genuine`].
    pub fn accepts(&self, token: &Parsed, purpose: Purpose<'_>) -> bool {
        token.is_genuine(self.0.verifying(), purpose)
    }
}

/// As [`token::parse`].
pub fn parse(token: Text<'_>) -> Option<Parsed> {
    token::parse(readable(token))
}

/// The code in an argument; `None` for what is none.
pub fn code(text: Text<'_>) -> Option<Code<'_>> {
    Code::new(readable(text))
}

/// The purpose a pair of SQL values stands for; a code is looked at for recoveries only.
///
/// # Errors
/// 22004 when a recovery's code is missing, 22023 when action or code has the wrong shape.
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
