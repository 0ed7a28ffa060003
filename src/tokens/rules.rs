//! The rules for a row of `tokens`.

use pgrx::datum::TryFromDatumError;
use pgrx::heap_tuple::PgHeapTuple;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::transaction;
use crate::pg::tuple::text_of_new_row;
use mailroom_core::token::{CODE_LEN, SECRET_LEN};

/// Seconds from 1970-01-01 to 2000-01-01, where the server's timestamps start.
const SECONDS_TO_2000: i64 = 946_684_800;

/// A rule for a value: the name that its constraint would have, and the remedy.
type Rule = (&'static str, &'static str);

/// Returns the first rule that a token violates. Its values are secrets, so neither rule nor remedy shows them.
fn token_problem(
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

/// Rejects an invalid token before it is stored, with 23514 and the name of the rule. A CHECK constraint would do the
/// same, but each statement would compile it again, and its error would quote the row.
#[pg_trigger(sql = false)]
fn _tokens_check<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, TryFromDatumError> {
    let Some(row) = trigger.new() else {
        return Ok(None);
    };
    let problem = {
        // The table rejects NULL.
        let values = (
            row.get_by_name::<i64>("id")?,
            row.get_by_name::<&[u8]>("secret")?,
            text_of_new_row(trigger, "code"),
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

/// Returns when the transaction began, in epoch seconds. `extract` uses numeric arithmetic, which costs several times
/// as much, and each token has two such times.
#[pg_extern(sql = false)]
fn _epoch() -> i64 {
    transaction::start().div_euclid(1_000_000) + SECONDS_TO_2000
}
