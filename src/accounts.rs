//! The triggers of `accounts`: what every row passes on its way in (email and login in lower case, the rules that
//! both must meet, the times of a change of status), and whether a change ends the open tokens.

use std::ffi::CStr;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::rules::{Check, email_problem, is_plain_lower_case, login_problem};
use crate::trigger::{
    Answer, Changes, Column, Kind, NewRow, VERSION_1, Violation, bytes, characters, hand_on,
    is_label,
};
use crate::{restore, server};

const FUNCTION: &str = "_accounts_normalise";
const REVOKE: &str = "_accounts_revoke_tokens";

/// Puts one column into lower case; returns the rule that it breaks. Null is for NOT NULL to refuse.
fn normalise_column(
    row: &mut NewRow,
    column: Column,
    label: &'static CStr,
    problem: Check,
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
    let (constraint, hint) = problem(unsafe { bytes(&value) }, characters)?;
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
    let restored = !row.is_update() && restore::in_progress();
    if !restored && status_changes(&row, status, value) {
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
    outcome.unwrap_or_report()
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

/// Whether tokens may have to end: an account was suspended, has another address, or is not the one it was.
fn may_end_tokens(changes: &Changes) -> Result<bool, ErrorReport> {
    let id = changes.new.column(c"id", Kind::BigInt, REVOKE)?;
    let email = changes.new.column(c"email", Kind::Text, REVOKE)?;
    let status = changes.new.column(c"status", Kind::Enum, REVOKE)?;
    Ok(changes.any(|old, new| {
        let email = (old.get(email), new.get(email));
        let moves = match &email {
            // SAFETY: both are texts.
            (Some(old), Some(new)) => unsafe { bytes(old) != bytes(new) },
            _ => true,
        };
        let is_suspended = old.get(status) != new.get(status)
            && new
                .get(status)
                .is_some_and(|value| is_label(value, c"suspended"));
        moves || is_suspended || old.get(id) != new.get(id)
    }))
}

#[pg_guard]
unsafe extern "C-unwind" fn may_end_tokens_guarded(fcinfo: pg_sys::FunctionCallInfo) -> bool {
    // SAFETY: what the server called with.
    let outcome =
        unsafe { Changes::of(fcinfo, REVOKE) }.and_then(|changes| may_end_tokens(&changes));
    outcome.unwrap_or_report()
}

/// `_accounts_revoke_tokens()` of `70_redeem.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _accounts_revoke_tokens_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the server's own argument is handed on; this frame owns nothing.
    unsafe {
        if may_end_tokens_guarded(fcinfo) {
            hand_on(fcinfo, c"_revoke_tokens_of_changed");
        }
    }
    pg_sys::Datum::null()
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__accounts_revoke_tokens_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}
