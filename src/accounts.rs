//! The trigger that every row of `accounts` passes on its way in: email and login in lower case, the rules
//! that both must meet, and the times of a change of status.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::server;
use crate::trigger::{
    Answer, Column, Kind, NewRow, VERSION_1, Violation, bytes, characters, is_label,
};

const FUNCTION: &str = "_accounts_normalise";

/// RFC 5321 section 4.5.3.1.3 leaves 254 characters for an address; a login is often one.
const LENGTH_MAX: usize = 254;

/// A rule for a value: the name that its constraint would have, and the remedy.
type Rule = (&'static CStr, &'static CStr);

/// The first rule that an email breaks.
fn email_problem(email: &[u8]) -> Option<Rule> {
    let at = email.iter().position(|byte| *byte == b'@');
    let one_at = at.is_some_and(|at| {
        at > 0 && at + 1 < email.len() && email.iter().rposition(|byte| *byte == b'@') == Some(at)
    });
    if !one_at {
        Some((
            c"accounts_email_must_contain_an_at_sign",
            c"Give one address: something, one @, something.",
        ))
    } else if email.iter().any(u8::is_ascii_control) {
        Some((
            c"accounts_email_must_not_contain_control_characters",
            c"Give the address without line breaks, tabs and other control characters.",
        ))
    } else if email.contains(&b' ') {
        Some((
            c"accounts_email_must_not_contain_spaces",
            c"Give the address alone, without spaces around or within it.",
        ))
    } else if email.len() > LENGTH_MAX && characters(email) > LENGTH_MAX {
        Some((
            c"accounts_email_must_not_exceed_254_characters",
            c"An address that mail can be sent to has 254 characters at most.",
        ))
    } else {
        None
    }
}

/// The first rule that a login breaks.
fn login_problem(login: &[u8]) -> Option<Rule> {
    if login.is_empty() {
        Some((c"accounts_login_must_not_be_empty", c"Give a name."))
    } else if login.iter().any(u8::is_ascii_control) {
        Some((
            c"accounts_login_must_not_contain_control_characters",
            c"Give a name without line breaks, tabs and other control characters.",
        ))
    } else if login.len() > LENGTH_MAX && characters(login) > LENGTH_MAX {
        Some((
            c"accounts_login_must_not_exceed_254_characters",
            c"Give a name of 254 characters at most.",
        ))
    } else {
        None
    }
}

/// Whether lower() leaves this as it is in any locale.
fn is_plain_lower_case(text: &[u8]) -> bool {
    text.iter()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
}

/// Puts one column into lower case; returns the rule that it breaks. Null is for NOT NULL to refuse.
fn normalise_column(
    row: &mut NewRow,
    column: Column,
    label: &'static CStr,
    problem: fn(&[u8]) -> Option<Rule>,
) -> Option<Violation> {
    let mut value = row.get(column)?;
    // SAFETY: a text.
    if !is_plain_lower_case(unsafe { bytes(&value) }) {
        let lower = column.lower(value);
        // SAFETY: both are texts.
        if unsafe { bytes(&lower) != bytes(&value) } {
            row.set([(column, Some(lower))]);
            value = lower;
        }
    }
    // SAFETY: a text.
    let (constraint, hint) = problem(unsafe { bytes(&value) })?;
    Some(Violation {
        constraint,
        hint,
        value: Some((label, column)),
    })
}

/// What a status means here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Active,
    Suspended,
    Other,
}

impl Status {
    fn of(value: pg_sys::Datum) -> Self {
        if is_label(value, c"active") {
            Self::Active
        } else if is_label(value, c"suspended") {
            Self::Suspended
        } else {
            Self::Other
        }
    }
}

/// Stamps and clears the times of a change of status.
fn stamp(row: &mut NewRow, status: Column, value: pg_sys::Datum) -> Result<(), ErrorReport> {
    let time = |name| row.column(name, Kind::BigInt, FUNCTION);
    let activated_at = time(c"activated_at")?;
    let suspended_at = time(c"suspended_at")?;
    let unsuspended_at = time(c"unsuspended_at")?;
    let changed_at = time(c"status_changed_at")?;
    let now = Some(pg_sys::Datum::from(server::transaction_epoch()));
    let updating = row.is_update();
    if updating {
        row.set([(changed_at, now)]);
    }
    // An account that comes with a status, from another system for instance, keeps the times it brings.
    let given_or_now = |row: &NewRow, column| row.get(column).filter(|_| !updating).or(now);
    if row.get_old(status).map(Status::of) == Some(Status::Suspended) {
        row.set([(suspended_at, None), (unsuspended_at, now)]);
        // Whoever lifts a suspension says 'active'; somebody who never proved the mailbox is not.
        if row.get(activated_at).is_none() {
            let provisioned = status.label(c"provisioned", FUNCTION)?;
            row.set([(status, Some(provisioned))]);
        }
        return Ok(());
    }
    match Status::of(value) {
        Status::Active => row.set([(activated_at, given_or_now(row, activated_at))]),
        Status::Suspended => row.set([
            (suspended_at, given_or_now(row, suspended_at)),
            (unsuspended_at, None),
        ]),
        Status::Other => {}
    }
    Ok(())
}

/// Whether the times of the status have to be looked at.
fn status_changes(row: &NewRow, status: Column, value: pg_sys::Datum) -> bool {
    if row.is_update() {
        row.get_old(status).is_some_and(|old| old != value)
    } else {
        !is_label(value, c"provisioned")
    }
}

fn normalise(mut row: NewRow) -> Result<Answer, ErrorReport> {
    let email = row.column(c"email", Kind::Text, FUNCTION)?;
    let login = row.column(c"login", Kind::Text, FUNCTION)?;
    let status = row.column(c"status", Kind::Enum, FUNCTION)?;
    let Some(value) = row.get(status) else {
        return Ok(row.accept());
    };
    if status_changes(&row, status, value) {
        stamp(&mut row, status, value)?;
    }
    // A null is for NOT NULL to refuse, before anything else is.
    if row.get(email).is_none() || row.get(login).is_none() {
        return Ok(row.accept());
    }
    let violation = normalise_column(&mut row, email, c"email", email_problem)
        .or_else(|| normalise_column(&mut row, login, c"login", login_problem));
    Ok(match violation {
        Some(violation) => row.refuse(&violation),
        None => row.accept(),
    })
}

#[pg_guard]
unsafe extern "C-unwind" fn normalise_guarded(fcinfo: pg_sys::FunctionCallInfo) -> Answer {
    // SAFETY: what the server called with.
    let outcome = unsafe { NewRow::of(fcinfo, FUNCTION) }.and_then(normalise);
    outcome.unwrap_or_else(Answer::fail)
}

/// `_accounts_normalise()` of `10_accounts.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _accounts_normalise_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the server's own argument is handed on; this frame owns nothing.
    unsafe { normalise_guarded(fcinfo).give() }
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__accounts_normalise_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn email(text: &str) -> Option<&str> {
        email_problem(text.as_bytes()).map(|(name, _)| name.to_str().unwrap())
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
        assert!(login_problem("l".repeat(254).as_bytes()).is_none());
        assert!(login_problem("l".repeat(255).as_bytes()).is_some());
    }

    #[test]
    fn a_login_is_not_empty_and_one_line() {
        let problem = |text: &str| login_problem(text.as_bytes()).map(|(name, _)| name);
        assert_eq!(problem(""), Some(c"accounts_login_must_not_be_empty"));
        let control = Some(c"accounts_login_must_not_contain_control_characters");
        assert_eq!(problem("a\nb"), control);
        assert_eq!(problem("Anna Müller"), None);
    }

    #[test]
    fn what_lower_leaves_alone() {
        assert!(is_plain_lower_case(b"a1@example.com"));
        assert!(!is_plain_lower_case(b"A"));
        assert!(!is_plain_lower_case("ü".as_bytes()));
    }
}
