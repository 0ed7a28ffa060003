//! What the verification of several providers needs: passwords, message authentication codes, and times. Pure.
//!
//! Every key is tried and every byte is compared, so the time reveals neither which key matched nor how much of a guess was
//! right.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::{EVENT_SECRET, Received, Request, timestamp};
use crate::transport::invalid::Invalid;

/// Characters of a time in seconds since 1970, until the year 2286. What is signed has no separator behind the time, so its
/// length must be known.
const TIMESTAMP_LEN: usize = 10;
/// Bytes of an HMAC-SHA256.
pub(super) const MAC_LEN: usize = 32;

/// `user:password` of basic authentication (RFC 7617), as its SHA-256: equal lengths are compared in constant time.
pub(super) struct Password([u8; 32]);

impl Password {
    /// # Errors
    /// If it is not a user and a password.
    pub(super) fn new(secret: &str) -> Result<Self, Invalid> {
        match secret.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok(Self(Sha256::digest(secret).into()))
            }
            _ => Err(Invalid::new(EVENT_SECRET, "is not user:password")),
        }
    }
}

/// Checks the header `Authorization` for one of these passwords.
pub(super) fn check_password(request: &Request<'_>, known: &[Password]) -> Result<(), Received> {
    let header = request
        .header("Authorization")
        .ok_or(Received::Forged("there is no Authorization header"))?;
    let (scheme, encoded) = header.split_once(' ').unwrap_or((header, ""));
    if !scheme.eq_ignore_ascii_case("Basic") {
        return Err(Received::Forged(
            "the Authorization header is not of basic authentication",
        ));
    }
    let given = Zeroizing::new(STANDARD.decode(encoded.trim()).unwrap_or_default());
    let digest = Sha256::digest(given.as_slice());
    let is_known = known.iter().fold(Choice::from(0), |found, password| {
        found | password.0.ct_eq(&digest)
    });
    if is_known.into() {
        Ok(())
    } else {
        Err(Received::Forged(
            "user and password are not those of event_secret",
        ))
    }
}

/// The HMAC-SHA256 of the concatenated parts.
pub(super) fn mac(key: &[u8], parts: &[&[u8]]) -> Option<[u8; MAC_LEN]> {
    // A key may have any length, so it is never refused.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    for part in parts {
        mac.update(part);
    }
    Some(mac.finalize().into_bytes().into())
}

/// The time of a signature that is made of it and what follows without a separator: ten digits.
pub(super) fn fixed_timestamp(text: &str) -> Option<SystemTime> {
    (text.len() == TIMESTAMP_LEN).then(|| timestamp::unix(text))?
}

/// Checks that a genuine request was signed at most `tolerance` ago.
pub(super) fn check_age(
    signed_at: SystemTime,
    now: SystemTime,
    tolerance: Duration,
) -> Result<(), Received> {
    match now.duration_since(signed_at) {
        Ok(age) if age > tolerance => Err(Received::Stale),
        _ => Ok(()),
    }
}
