//! The triggers of `tokens`: what every row passes on its way in (what may be in one, and that its id stays), and
//! whether a change activates an account.

use std::ffi::CStr;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::token::{CODE_LEN, SECRET_LEN};
use crate::trigger::{
    Answer, Column, Kind, NewRow, VERSION_1, Violation, bytes, hand_on, is_label,
};

const FUNCTION: &str = "_tokens_check";
const ACTIVATE: &str = "_tokens_activate_account";

/// The columns there are rules for.
struct Columns {
    id: Column,
    secret: Column,
    code: Column,
    expires_at: Column,
    created_at: Column,
    wrong_codes: Column,
}

impl Columns {
    fn of(row: &NewRow) -> Result<Self, ErrorReport> {
        let column = |name, kind| row.column(name, kind, FUNCTION);
        Ok(Self {
            id: column(c"id", Kind::BigInt)?,
            secret: column(c"secret", Kind::Bytea)?,
            code: column(c"code", Kind::Text)?,
            expires_at: column(c"expires_at", Kind::BigInt)?,
            created_at: column(c"created_at", Kind::BigInt)?,
            wrong_codes: column(c"wrong_codes", Kind::SmallInt)?,
        })
    }
}

/// A bigint of the row; null is for NOT NULL to refuse.
fn bigint(row: &NewRow, column: Column) -> Option<i64> {
    row.get(column).map(|value| value.value() as i64)
}

/// The first rule that the row breaks. No value is shown: most of them are secrets.
fn problem(row: &NewRow, columns: &Columns) -> Option<(&'static CStr, &'static CStr)> {
    let code = row.get(columns.code)?;
    let secret = row.get(columns.secret)?;
    let expires_at = bigint(row, columns.expires_at)?;
    let created_at = bigint(row, columns.created_at)?;
    let wrong_codes = row.get(columns.wrong_codes)?.value() as i16;
    // SAFETY: a text and a bytea.
    let (code, secret) = unsafe { (bytes(&code), bytes(&secret)) };
    if code.len() != CODE_LEN || !code.iter().all(u8::is_ascii_digit) {
        Some((
            c"tokens_code_must_be_five_digits",
            c"Leave the code out: it is drawn at random.",
        ))
    } else if expires_at <= created_at {
        Some((
            c"tokens_expiry_must_follow_creation",
            c"To end a token, set consumed_at or delete it.",
        ))
    } else if bigint(row, columns.id)? <= 0 {
        Some((
            c"tokens_id_must_be_positive",
            c"Leave the id out: it comes from a sequence.",
        ))
    } else if secret.len() != SECRET_LEN {
        Some((
            c"tokens_secret_must_be_32_bytes",
            c"Leave the secret out: it is drawn at random.",
        ))
    } else if wrong_codes < 0 {
        Some((
            c"tokens_wrong_codes_must_not_be_negative",
            c"Set it to 0 to let the token be tried again.",
        ))
    } else {
        None
    }
}

/// The queue and the outbox know a token by its id.
fn id_changes(row: &NewRow, columns: &Columns) -> bool {
    row.get_old(columns.id)
        .is_some_and(|old| row.get(columns.id) != Some(old))
}

/// Takes the count of wrong codes from the row that is replaced, unless the UPDATE names it.
///
/// The count changes in place (`guesses.rs`), and an UPDATE that waited for a guess has read the row before it waited;
/// what it replaces has been locked and read again since.
fn keep_count(row: &mut NewRow, column: Column) {
    if row.is_update() && !row.is_assigned(column) && row.get(column) != row.get_old(column) {
        row.set([(column, row.get_old(column))]);
    }
}

fn check(mut row: NewRow) -> Result<Answer, ErrorReport> {
    let columns = Columns::of(&row)?;
    keep_count(&mut row, columns.wrong_codes);
    if id_changes(&row, &columns) {
        return Err(ErrorReport::new(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            "the id of a token cannot be changed",
            function_name!(),
        )
        .set_detail("It is in the queue and in the outbox under its id.")
        .set_hint("Insert a new token instead."));
    }
    Ok(match problem(&row, &columns) {
        Some((constraint, hint)) => row.refuse(&Violation {
            constraint,
            hint,
            value: None,
        }),
        None => row.accept(),
    })
}

#[pg_guard]
unsafe extern "C-unwind" fn check_guarded(fcinfo: pg_sys::FunctionCallInfo) -> Answer {
    // SAFETY: what the server called with.
    let outcome = unsafe { NewRow::of(fcinfo, FUNCTION) }.and_then(check);
    outcome.unwrap_or_report()
}

/// `_tokens_check()` of `20_tokens.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _tokens_check_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the server's own argument is handed on; this frame owns nothing.
    unsafe { check_guarded(fcinfo).give() }
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__tokens_check_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}

/// Whether an activation token was used up.
fn activates(row: &NewRow) -> Result<bool, ErrorReport> {
    let action = row.column(c"action", Kind::Enum, ACTIVATE)?;
    let consumed_at = row.column(c"consumed_at", Kind::BigInt, ACTIVATE)?;
    Ok(row.get_old(consumed_at).is_none()
        && row.get(consumed_at).is_some()
        && row
            .get(action)
            .is_some_and(|value| is_label(value, c"activation")))
}

#[pg_guard]
unsafe extern "C-unwind" fn activates_guarded(fcinfo: pg_sys::FunctionCallInfo) -> bool {
    // SAFETY: what the server called with.
    let outcome = unsafe { NewRow::stored(fcinfo, ACTIVATE) }.and_then(|row| activates(&row));
    outcome.unwrap_or_report()
}

/// `_tokens_activate_account()` of `20_tokens.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _tokens_activate_account_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the server's own argument is handed on; this frame owns nothing.
    unsafe {
        if activates_guarded(fcinfo) {
            hand_on(fcinfo, c"_activate_account");
        }
    }
    pg_sys::Datum::null()
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__tokens_activate_account_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}
