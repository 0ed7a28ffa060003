//! The wire format of a signed token: sign, parse, verify.
//!
//! A signed token is the string that a mail contains:
//! `base64url_nopad(secret[32] ‖ HMAC-SHA256(key, message))`, 86 characters of RFC 4648 §5 without
//! padding. `message` is `"/activate" ‖ secret` for an activation and `"/recover" ‖ secret ‖ code` for a
//! password recovery, so a token signed for one action is never good for the other.
//!
//! This module is pure: bytes in, bytes out. It never reads a file, a setting or a table, and nothing
//! in it formats a key or a secret.

pub mod key_file;
pub mod unsubscribe;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

/// Bytes of a token's random secret.
pub const SECRET_LEN: usize = 32;
/// Bytes of an HMAC-SHA256.
pub const MAC_LEN: usize = 32;
/// Bytes of a signing key.
pub const KEY_LEN: usize = 32;
/// Bytes of a block of SHA-256, FIPS 180-4.
const SHA256_BLOCK_LEN: usize = 64;
/// Decimal digits of a recovery code.
pub const CODE_LEN: usize = 5;
/// Characters of a signed token.
pub const TOKEN_LEN: usize = (SECRET_LEN + MAC_LEN).div_ceil(3) * 4 - 2;

/// One signing key, kept as a keyed HMAC state so that the key schedule is computed once for a batch.
///
/// It has no `Debug`: no part of a key may be printed.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Takes over the 32 bytes of a key.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        // RFC 2104 pads a short key with zeros to the block length. Doing it here picks the constructor
        // that cannot fail.
        let mut block = Zeroizing::new([0_u8; SHA256_BLOCK_LEN]);
        block[..KEY_LEN].copy_from_slice(key);
        Self(Hmac::<Sha256>::new((&*block).into()))
    }

    /// The MAC of a message in parts.
    fn mac(&self, message: [&[u8]; 3]) -> [u8; MAC_LEN] {
        let mut mac = self.0.clone();
        for part in message {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// The purpose of a token; the MAC covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Proves access to the mailbox that an account was registered with.
    Activation,
    /// Allows a new password together with this code, which comes in the same mail: it protects a link that leaked alone.
    PasswordRecovery {
        /// Five decimal digits.
        code: Code<'a>,
    },
}

impl Purpose<'_> {
    /// The path of a link for this purpose, with which the input of its MAC begins.
    pub fn path(self) -> &'static str {
        match self {
            Self::Activation => "/activate",
            Self::PasswordRecovery { .. } => "/recover",
        }
    }
}

/// Five decimal digits.
///
/// The digits are secret until the mail is sent, so there is no derived `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code<'a>(&'a str);

impl std::fmt::Debug for Code<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Code(_)")
    }
}

impl<'a> Code<'a> {
    /// Accepts exactly five ASCII digits.
    pub fn new(digits: &'a str) -> Option<Self> {
        (digits.len() == CODE_LEN && digits.bytes().all(|b| b.is_ascii_digit()))
            .then_some(Self(digits))
    }
}

impl Code<'_> {
    /// Compares two codes in constant time.
    pub fn is(self, other: Code<'_>) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

/// The input of the MAC.
fn signed<'a>(purpose: Purpose<'a>, secret: &'a [u8; SECRET_LEN]) -> [&'a [u8]; 3] {
    let code = match purpose {
        Purpose::Activation => "",
        Purpose::PasswordRecovery { code } => code.0,
    };
    [purpose.path().as_bytes(), secret, code.as_bytes()]
}

/// A well-formed token; [`Parsed::is_genuine`] checks its MAC.
pub struct Parsed {
    secret: Zeroizing<[u8; SECRET_LEN]>,
    mac: [u8; MAC_LEN],
}

/// Signs `secret` for `purpose` and returns the 86 characters that go into the mail.
pub fn sign(key: &SigningKey, purpose: Purpose<'_>, secret: &[u8; SECRET_LEN]) -> String {
    let mut raw = Zeroizing::new([0_u8; SECRET_LEN + MAC_LEN]);
    raw[..SECRET_LEN].copy_from_slice(secret);
    raw[SECRET_LEN..].copy_from_slice(&key.mac(signed(purpose, secret)));
    URL_SAFE_NO_PAD.encode(raw.as_slice())
}

/// Decodes a token strictly: exact length, URL-safe alphabet, no padding, canonical trailing bits.
///
/// Returns `None` for any other string, without a reason, because the reason would help to forge a token.
pub fn parse(token: &str) -> Option<Parsed> {
    if token.len() != TOKEN_LEN {
        return None;
    }
    let mut raw = Zeroizing::new([0_u8; SECRET_LEN + MAC_LEN]);
    // The last of the 86 characters has four bits beyond the 64 bytes. The decoder accepts only zeros there, so that a
    // token has one spelling.
    URL_SAFE_NO_PAD.decode_slice(token, &mut *raw).ok()?;
    let (secret, mac) = raw.split_at(SECRET_LEN);
    Some(Parsed {
        secret: Zeroizing::new(secret.try_into().ok()?),
        mac: mac.try_into().ok()?,
    })
}

impl Parsed {
    /// The secret, by which the token is looked up. It does not prove that the token is genuine.
    pub fn secret(&self) -> &[u8; SECRET_LEN] {
        &self.secret
    }

    /// Whether one of `keys` signed this token for `purpose`.
    ///
    /// Every key is tried and every byte is compared, so the time reveals neither the key nor how much of a guess was right.
    pub fn is_genuine<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k SigningKey>,
        purpose: Purpose<'_>,
    ) -> bool {
        let message = signed(purpose, &self.secret);
        keys.into_iter()
            .fold(Choice::from(0), |found, key| {
                found | key.mac(message).ct_eq(&self.mac)
            })
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(digits: &str) -> Vec<u8> {
        (0..digits.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
            .collect()
    }

    fn key(byte: u8) -> SigningKey {
        SigningKey::new(&[byte; KEY_LEN])
    }

    /// Verifies one row of the known answers as a stranger would: from its strings.
    fn accepts(row: &serde_json::Value) -> bool {
        let key: [u8; KEY_LEN] = hex(row["key"].as_str().unwrap()).try_into().unwrap();
        let purpose = match row["action"].as_str().unwrap() {
            "activation" => Purpose::Activation,
            _ => Purpose::PasswordRecovery {
                code: Code::new(row["code"].as_str().unwrap()).unwrap(),
            },
        };
        parse(row["token"].as_str().unwrap())
            .is_some_and(|token| token.is_genuine([&SigningKey::new(&key)], purpose))
    }

    fn rows(kind: &str) -> Vec<serde_json::Value> {
        let all: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/vectors/tokens.json")).unwrap();
        let rows = all[kind].as_array().unwrap().clone();
        assert!(rows.len() >= 5, "the known answers are incomplete");
        rows
    }

    #[test]
    fn every_valid_known_answer_verifies() {
        for row in rows("valid") {
            assert!(accepts(&row), "{row}");
        }
    }

    #[test]
    fn every_invalid_known_answer_is_refused() {
        for row in rows("invalid") {
            assert!(!accepts(&row), "{row}");
        }
    }

    #[test]
    fn signing_reproduces_every_valid_known_answer() {
        for row in rows("valid") {
            let token = row["token"].as_str().unwrap();
            let key: [u8; KEY_LEN] = hex(row["key"].as_str().unwrap()).try_into().unwrap();
            let secret = *parse(token).unwrap().secret;
            if let Some(expected) = row["secret"].as_str() {
                assert_eq!(hex(expected), secret);
            }
            let purpose = match row["code"].as_str() {
                None => Purpose::Activation,
                Some(code) => Purpose::PasswordRecovery {
                    code: Code::new(code).unwrap(),
                },
            };
            assert_eq!(sign(&SigningKey::new(&key), purpose, &secret), token);
        }
    }

    #[test]
    fn a_code_is_five_ascii_digits() {
        for good in ["00000", "01234", "99999"] {
            assert!(Code::new(good).is_some());
        }
        for bad in [
            "",
            "1234",
            "123456",
            "1234a",
            " 1234",
            "+1234",
            "١٢٣٤٥",
            "#####",
        ] {
            assert!(Code::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn debug_of_a_code_shows_no_digit() {
        assert_eq!(format!("{:?}", Code::new("12345").unwrap()), "Code(_)");
    }

    fn purposes() -> impl Strategy<Value = Option<String>> {
        prop_oneof![
            Just(None),
            (0..100_000_u32).prop_map(|n| Some(format!("{n:05}")))
        ]
    }

    fn purpose(code: &Option<String>) -> Purpose<'_> {
        code.as_deref()
            .map_or(Purpose::Activation, |digits| Purpose::PasswordRecovery {
                code: Code::new(digits).unwrap(),
            })
    }

    proptest! {
        #[test]
        fn codes_are_the_same_only_if_every_digit_is(a in "[0-9]{5}", b in "[0-9]{5}", at in 0..CODE_LEN) {
            let code = Code::new(&a).unwrap();
            prop_assert!(code.is(code));
            prop_assert_eq!(code.is(Code::new(&b).unwrap()), a == b);
            let mut near = a.clone();
            near.replace_range(at..=at, if &a[at..=at] == "0" { "1" } else { "0" });
            prop_assert!(!code.is(Code::new(&near).unwrap()));
        }

        #[test]
        fn the_secret_of_a_parsed_token_is_what_was_signed(secret: [u8; SECRET_LEN], code in purposes()) {
            let token = sign(&key(1), purpose(&code), &secret);
            let parsed = parse(&token).unwrap();
            prop_assert_eq!(parsed.secret(), &secret);
        }

        #[test]
        fn what_was_signed_verifies(k: u8, secret: [u8; SECRET_LEN], code in purposes()) {
            let token = sign(&key(k), purpose(&code), &secret);
            prop_assert_eq!(token.len(), TOKEN_LEN);
            let parsed = parse(&token).unwrap();
            prop_assert_eq!(&*parsed.secret, &secret);
            prop_assert!(parsed.is_genuine([&key(k)], purpose(&code)));
        }

        #[test]
        fn any_key_of_the_ring_will_do_and_no_other(k: u8, secret: [u8; SECRET_LEN]) {
            let parsed = parse(&sign(&key(k), Purpose::Activation, &secret)).unwrap();
            let others = [key(k.wrapping_add(1)), key(k.wrapping_add(2))];
            prop_assert!(!parsed.is_genuine(&others, Purpose::Activation));
            prop_assert!(parsed.is_genuine(others.iter().chain([&key(k)]), Purpose::Activation));
            prop_assert!(!parsed.is_genuine([], Purpose::Activation));
        }

        #[test]
        fn a_changed_character_never_verifies(
            secret: [u8; SECRET_LEN], code in purposes(), at in 0..TOKEN_LEN, to in "[A-Za-z0-9_-]",
        ) {
            let token = sign(&key(1), purpose(&code), &secret);
            let mut forged = token.clone();
            forged.replace_range(at..=at, &to);
            let accepted = parse(&forged).is_some_and(|t| t.is_genuine([&key(1)], purpose(&code)));
            prop_assert_eq!(accepted, forged == token);
        }

        #[test]
        fn another_purpose_never_verifies(secret: [u8; SECRET_LEN], a in purposes(), b in purposes()) {
            let parsed = parse(&sign(&key(1), purpose(&a), &secret)).unwrap();
            prop_assert_eq!(parsed.is_genuine([&key(1)], purpose(&b)), a == b);
        }

        #[test]
        fn arbitrary_text_is_never_genuine(text in ".{0,100}") {
            prop_assert!(!parse(&text).is_some_and(|t| t.is_genuine([&key(1)], Purpose::Activation)));
        }

        #[test]
        fn there_is_one_spelling_of_a_token(raw: [u8; SECRET_LEN], to in "[A-Za-z0-9_-]") {
            let token = sign(&key(1), Purpose::Activation, &raw);
            let other = format!("{}{to}", &token[..TOKEN_LEN - 1]);
            let same_bytes = parse(&other).is_some_and(|p| p.is_genuine([&key(1)], Purpose::Activation));
            prop_assert_eq!(same_bytes, other == token);
        }
    }
}
