//! What a row of `accounts` or `tokens` may hold. Pure: bytes in any encoding in which ASCII is ASCII, as the
//! server's all are.
//!
//! Less is asked of an address here than when one sends to it ([`mailroom_core::address`]): who may have an account is the
//! application's business, what would break out of a mail's header is ours.

use pgrx::datum::TryFromDatumError;
use pgrx::heap_tuple::PgHeapTuple;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use mailroom_core::token::{CODE_LEN, SECRET_LEN};

/// RFC 5321 section 4.5.3.1.3 leaves 254 characters for an address; a login is often one.
const LENGTH_MAX: usize = 254;

/// From 1970 to 2000, which the server counts from.
const SECONDS_TO_2000: i64 = 946_684_800;

/// A rule for a value: the name that its constraint would have, and the remedy.
pub type Rule = (&'static str, &'static str);

/// Counts the characters of a text in the server's encoding.
pub type Count = fn(&[u8]) -> usize;

/// The first rule that an email breaks.
pub fn email_problem(email: &[u8], characters: Count) -> Option<Rule> {
    let at = email.iter().position(|byte| *byte == b'@');
    let one_at = at.is_some_and(|at| {
        at > 0 && at + 1 < email.len() && email.iter().rposition(|byte| *byte == b'@') == Some(at)
    });
    if !one_at {
        Some((
            "accounts_email_must_contain_an_at_sign",
            "Give one address: something, one @, something.",
        ))
    } else if email.iter().any(u8::is_ascii_control) {
        Some((
            "accounts_email_must_not_contain_control_characters",
            "Give the address without line breaks, tabs and other control characters.",
        ))
    } else if email.contains(&b' ') {
        Some((
            "accounts_email_must_not_contain_spaces",
            "Give the address alone, without spaces around or within it.",
        ))
    } else if email.len() > LENGTH_MAX && characters(email) > LENGTH_MAX {
        Some((
            "accounts_email_must_not_exceed_254_characters",
            "An address that mail can be sent to has 254 characters at most.",
        ))
    } else {
        None
    }
}

/// The first rule that a login breaks.
pub fn login_problem(login: &[u8], characters: Count) -> Option<Rule> {
    if login.is_empty() {
        Some(("accounts_login_must_not_be_empty", "Give a name."))
    } else if login.iter().any(u8::is_ascii_control) {
        Some((
            "accounts_login_must_not_contain_control_characters",
            "Give a name without line breaks, tabs and other control characters.",
        ))
    } else if login.len() > LENGTH_MAX && characters(login) > LENGTH_MAX {
        Some((
            "accounts_login_must_not_exceed_254_characters",
            "Give a name of 254 characters at most.",
        ))
    } else {
        None
    }
}

/// The first rule that a token breaks. Its values are secrets, so neither the rule nor the remedy shows them.
pub fn token_problem(
    id: i64,
    secret: &[u8],
    code: &[u8],
    lifetime: [i64; 2],
    wrong_codes: i16,
) -> Option<Rule> {
    let [created_at, expires_at] = lifetime;
    if code.len() != CODE_LEN || !code.iter().all(u8::is_ascii_digit) {
        Some((
            "tokens_code_must_be_five_digits",
            "Leave the code out: it is drawn at random.",
        ))
    } else if expires_at <= created_at {
        Some((
            "tokens_expiry_must_follow_creation",
            "To end a token, set consumed_at or delete it.",
        ))
    } else if id <= 0 {
        // Scans of pending start above 0.
        Some((
            "tokens_id_must_be_positive",
            "Leave the id out: it comes from a sequence.",
        ))
    } else if secret.len() != SECRET_LEN {
        Some((
            "tokens_secret_must_be_32_bytes",
            "Leave the secret out: it is drawn at random.",
        ))
    } else if wrong_codes < 0 {
        Some((
            "tokens_wrong_codes_must_not_be_negative",
            "Set it to 0 to let the token be tried again.",
        ))
    } else {
        None
    }
}

/// Refuses what is no token, before it is stored: 23514 with the name of the rule, as a CHECK constraint would, but that
/// is compiled by each statement again and quotes the row.
#[pg_trigger(sql = false)]
fn _tokens_check<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, TryFromDatumError> {
    let Some(row) = trigger.new() else {
        return Ok(None);
    };
    let problem = {
        // What is NULL is refused by the table.
        let values = (
            row.get_by_name::<i64>("id")?,
            row.get_by_name::<&[u8]>("secret")?,
            text(trigger, "code"),
            row.get_by_name::<i64>("created_at")?,
            row.get_by_name::<i64>("expires_at")?,
            row.get_by_name::<i16>("wrong_codes")?,
        );
        match values {
            (Some(id), Some(secret), Some(code), Some(created), Some(expires), Some(wrong)) => {
                token_problem(id, secret, code, [created, expires], wrong)
            }
            _ => None,
        }
    };
    if let Some((rule, remedy)) = problem {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
            format!("new row for relation \"tokens\" violates check constraint \"{rule}\""),
            function_name!(),
        )
        .set_hint(remedy)
        .report(PgLogLevel::ERROR);
    }
    Ok(Some(row))
}

#[pg_extern(sql = false)]
fn _account_problem(email: Option<&[u8]>, login: Option<&[u8]>) -> Option<Vec<&'static str>> {
    let (email, login) = (email?, login?);
    let ((name, remedy), column) = email_problem(email, characters)
        .map(|rule| (rule, "email"))
        .or_else(|| login_problem(login, characters).map(|rule| (rule, "login")))?;
    Some(vec![column, name, remedy])
}

#[pg_extern(sql = false)]
fn _account_is_plain(email: &[u8], login: &[u8]) -> bool {
    let is_plain = |text: &[u8]| {
        text.iter()
            .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    };
    is_plain(email)
        && is_plain(login)
        && email_problem(email, characters).is_none()
        && login_problem(login, characters).is_none()
}

/// When the transaction began, in seconds since 1970. Arithmetic on numeric, as `extract` does it, costs several times as
/// much, and each token has two such times.
#[pg_extern(sql = false)]
fn _epoch() -> i64 {
    // SAFETY: a plain variable of this process.
    let began = unsafe { pg_sys::GetCurrentTransactionStartTimestamp() };
    began.div_euclid(1_000_000) + SECONDS_TO_2000
}

/// A column of a trigger's row that is text, in the server's encoding.
fn text<'a>(trigger: &'a PgTrigger<'a>, column: &str) -> Option<&'a [u8]> {
    let row = trigger.new()?;
    let (number, column) = row.get_attribute_by_name(column)?;
    if column.atttypid != pg_sys::TEXTOID {
        return None;
    }
    // SAFETY: table and row are there for as long as the trigger runs; text is stored as bytea is.
    unsafe {
        let shape = (*trigger.trigger_data().tg_relation).rd_att;
        let datum = pgrx::htup::heap_getattr_raw(row.into_pg(), number, shape)?;
        <&[u8]>::from_polymorphic_datum(datum, false, pg_sys::BYTEAOID)
    }
}

/// The characters in a text of the server's encoding.
fn characters(text: &[u8]) -> usize {
    let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
    // SAFETY: reads that many bytes, which the server has checked to be of its encoding.
    let characters = unsafe { pg_sys::pg_mbstrlen_with_len(text.as_ptr().cast(), length) };
    usize::try_from(characters).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters(text: &[u8]) -> usize {
        String::from_utf8_lossy(text).chars().count()
    }

    fn email(text: &str) -> Option<&'static str> {
        email_problem(text.as_bytes(), characters).map(|(name, _)| name)
    }

    fn login(text: &str) -> Option<&'static str> {
        login_problem(text.as_bytes(), characters).map(|(name, _)| name)
    }

    #[test]
    fn an_email_has_one_at_sign_within() {
        assert_eq!(email("a@b"), None);
        assert_eq!(email("first.last+tag@exa-mple.com"), None);
        for bad in ["", "@", "a", "@b", "a@", "a@b@c", "a@@b"] {
            let name = email(bad);
            assert_eq!(
                name,
                Some("accounts_email_must_contain_an_at_sign"),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_email_is_one_word() {
        for bad in ["a\n@b", "a@b\r\nBcc: c", "a\t@b", "a\x7f@b", "\x01a@b"] {
            let name = email(bad);
            let control = Some("accounts_email_must_not_contain_control_characters");
            assert_eq!(name, control, "{bad:?}");
        }
        for bad in [" a@b", "a @b", "a@b "] {
            let name = email(bad);
            assert_eq!(
                name,
                Some("accounts_email_must_not_contain_spaces"),
                "{bad:?}"
            );
        }
        // Beyond ASCII nothing is a control character to a database whose encoding is not known here.
        assert_eq!(email("ü\u{85}@b"), None);
    }

    #[test]
    fn lengths_are_bounded() {
        let long = "a".repeat(252);
        assert_eq!(email(&format!("{long}@b")), None);
        assert_eq!(
            email(&format!("{long}@bc")),
            Some("accounts_email_must_not_exceed_254_characters")
        );
        assert_eq!(login(&"l".repeat(254)), None);
        assert_eq!(
            login(&"l".repeat(255)),
            Some("accounts_login_must_not_exceed_254_characters")
        );
        // Characters, not bytes.
        assert_eq!(login(&"é".repeat(254)), None);
    }

    #[test]
    fn a_login_is_not_empty_and_one_line() {
        assert_eq!(login(""), Some("accounts_login_must_not_be_empty"));
        let control = Some("accounts_login_must_not_contain_control_characters");
        assert_eq!(login("a\nb"), control);
        assert_eq!(login("Anna Müller"), None);
    }
}
