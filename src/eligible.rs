//! Which tokens are still good, of those that are read without a statement; `_handout` of `sql/50_handout.sql` says the
//! same, and of all others the reason.

use crate::server;
use crate::table::{Altered, Row};
use crate::trigger::Kind;

/// Whether a token is open and its account, if there is one, in the state that it is for.
///
/// # Errors
/// When a table lacks one of the columns.
pub fn is_eligible(
    token: &Row<'_>,
    account: Option<&Row<'_>>,
    is_recovery: bool,
) -> Result<bool, Altered> {
    let status = if is_recovery {
        c"active"
    } else {
        c"provisioned"
    };
    let has_status = match account {
        Some(account) => account.is(c"status", status)?,
        None => false,
    };
    let is_used = token.get(c"consumed_at", Kind::BigInt)?.is_some()
        || token.get(c"revoked_at", Kind::BigInt)?.is_some();
    let expires_at = token.get(c"expires_at", Kind::BigInt)?;
    let is_open = expires_at.is_some_and(|time| time.value() as i64 > server::epoch());
    Ok(has_status && !is_used && is_open)
}
