//! Tokens of links that unsubscribe an address from a list.
//!
//! A token is `base64url_nopad(HMAC-SHA256(key, "/unsubscribe" ‖ list ‖ 0 ‖ address) ‖ list ‖ 0 ‖ address)`, RFC 4648 §5
//! without padding, list and address in UTF-8, the address as its key. It does not expire, and holds nothing that the
//! recipient of the mail does not know.
//!
//! This module is pure, as [`super`].

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::{Choice, ConstantTimeEq};

use super::{MAC_LEN, SigningKey};
use crate::address;
use crate::line::{self, Named};

/// The path of a link, with which the input of its MAC begins.
pub const PATH: &str = "/unsubscribe";
/// Maximum octets of the name of a list: a link has to fit into a header, which providers limit.
const LIST_MAX: usize = 128;
/// Maximum characters of a token.
pub const TOKEN_MAX: usize = 1024;

/// Whose link it is, and for which list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscriber {
    /// The list.
    pub list: String,
    /// The key of the address, see [`address::key`].
    pub address: String,
}

/// Checks the name of a list.
///
/// # Errors
/// What is wrong, for a sentence that begins with the name.
pub fn check_list(list: &str) -> Result<(), String> {
    if list.is_empty() {
        Err("is empty".to_owned())
    } else if list.len() > LIST_MAX {
        let octets = list.len();
        Err(format!(
            "has {octets} octets, at most {LIST_MAX} are allowed"
        ))
    } else if let Some(found) = line::first_control(list) {
        Err(format!("contains the control character {}", Named(found)))
    } else {
        Ok(())
    }
}

/// Signs the token of an address for a list; `None` if one of the two is not valid.
pub fn sign(key: &SigningKey, list: &str, address: &str) -> Option<String> {
    check_list(list).ok()?;
    let address = address::key(address).ok()?;
    let whose = [list.as_bytes(), b"\0", address.as_bytes()].concat();
    let mac = key.mac([PATH.as_bytes(), &whose, b""]);
    Some(URL_SAFE_NO_PAD.encode([&mac[..], &whose].concat()))
}

/// Reads a token that one of these keys signed; `None` for any other string, without a reason.
///
/// Every key is tried and every byte is compared, as in [`super::Parsed::is_genuine`].
pub fn verify<'k>(
    keys: impl IntoIterator<Item = &'k SigningKey>,
    token: &str,
) -> Option<Unsubscriber> {
    if token.len() > TOKEN_MAX {
        return None;
    }
    // The decoder accepts one spelling of each token only.
    let raw = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (mac, whose) = raw.split_at_checked(MAC_LEN)?;
    let is_signed = keys.into_iter().fold(Choice::from(0), |found, key| {
        found | key.mac([PATH.as_bytes(), whose, b""]).ct_eq(mac)
    });
    if !bool::from(is_signed) {
        return None;
    }
    let (list, address) = std::str::from_utf8(whose).ok()?.split_once('\0')?;
    Some(Unsubscriber {
        list: list.to_owned(),
        address: address.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::token::KEY_LEN;

    fn key(byte: u8) -> SigningKey {
        SigningKey::new(&[byte; KEY_LEN])
    }

    fn rows(kind: &str) -> Vec<serde_json::Value> {
        let all: serde_json::Value =
            serde_json::from_str(include_str!("../../../../tests/vectors/tokens.json")).unwrap();
        let rows = all[kind].as_array().unwrap().clone();
        assert!(rows.len() >= 5, "the known answers are incomplete");
        rows
    }

    fn known(row: &serde_json::Value) -> (SigningKey, Option<Unsubscriber>) {
        let digits = row["key"].as_str().unwrap();
        let bytes: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
            .collect();
        let key = SigningKey::new(&bytes.try_into().unwrap());
        let read = verify([&key], row["token"].as_str().unwrap());
        (key, read)
    }

    #[test]
    fn known_answers_are_read_and_made_again() {
        for row in rows("unsubscribe") {
            let (key, read) = known(&row);
            let (list, address) = (row["list"].as_str().unwrap(), row["address"].as_str());
            let expected = Unsubscriber {
                list: list.to_owned(),
                address: address.unwrap().to_owned(),
            };
            assert_eq!(read.as_ref(), Some(&expected), "{row}");
            let from = row["from"].as_str().or(address).unwrap();
            assert_eq!(sign(&key, list, from).as_deref(), row["token"].as_str());
        }
    }

    #[test]
    fn known_forgeries_are_refused() {
        for row in rows("unsubscribe_invalid") {
            assert_eq!(known(&row).1, None, "{row}");
        }
    }

    #[test]
    fn a_list_is_one_short_line() {
        for good in ["newsletter", "Neuigkeiten für alle", &"a".repeat(LIST_MAX)] {
            assert_eq!(check_list(good), Ok(()), "{good}");
        }
        for bad in ["", "a\nb", "a\0b", "a\u{2028}b", &"ü".repeat(65)] {
            assert!(check_list(bad).is_err(), "{bad:?}");
            assert_eq!(sign(&key(1), bad, "a@example.com"), None);
        }
        assert_eq!(sign(&key(1), "news", "a@"), None);
    }

    proptest! {
        #[test]
        fn what_was_signed_verifies(k: u8, list in "[a-zü ]{1,40}", local in "[A-Za-zé.+]{1,20}") {
            let address = format!("{local}@Example.com");
            let Some(token) = sign(&key(k), &list, &address) else {
                return Ok(());
            };
            let read = verify([&key(k.wrapping_add(1)), &key(k)], &token).unwrap();
            prop_assert_eq!(read.list, list);
            prop_assert_eq!(read.address, address::key(&address).unwrap());
            prop_assert_eq!(verify([&key(k.wrapping_add(1))], &token), None);
            prop_assert_eq!(verify([], &token), None);
        }

        #[test]
        fn a_changed_character_never_verifies(at in 0..86_usize, to in "[A-Za-z0-9_-]") {
            let token = sign(&key(1), "news", "ann@example.com").unwrap();
            let at = at % token.len();
            let mut forged = token.clone();
            forged.replace_range(at..=at, &to);
            prop_assert_eq!(verify([&key(1)], &forged).is_some(), forged == token);
        }

        #[test]
        fn arbitrary_text_is_never_signed(text in ".{0,100}") {
            prop_assert_eq!(verify([&key(1)], &text), None);
        }
    }
}
