//! Judging a link: the token behind it, if the link is genuine and still good.
//!
//! Peeking and redeeming ask this of whatever comes in, and most of what comes in from outside may be forged. So it is
//! done here, by two readings of a unique key, and not by a statement, which was a third of what a redemption cost.
//! What is not good gives one answer, after the same work: the key is followed to the next row there is, so that an
//! unknown token takes the same reading and verifying as one that is forged, used or expired.
//!
//! Nothing is locked and nothing promised: who acts on the answer locks the rows and looks again.

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::eligible::{Accounts, Action, Tokens, open_sources};
use crate::signing::{self, Text};
use crate::table::{Altered, Search, schema_of};
use crate::token::Purpose;
use crate::trigger::{Kind, VERSION_1, bytes};

/// This secret, or the next there is.
const BY_SECRET: Search = Search {
    column: c"secret",
    kind: Kind::Bytea,
    strategy: pg_sys::BTGreaterEqualStrategyNumber,
    function: pg_sys::F_BYTEAGE,
};

impl From<Altered> for ErrorReport {
    fn from(altered: Altered) -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            format!("the table {} is not as mailroom made it", altered.table),
            function_name!(),
        )
        .set_detail(altered.detail)
        .set_hint("Links are looked up in tokens by secret, and in accounts by id. Put back what was dropped, altered or renamed, for instance: ALTER TABLE tokens ADD CONSTRAINT tokens_secret_key UNIQUE (secret).")
    }
}

/// The token behind a link that is genuine and good, as a value of its table's type.
///
/// # Errors
/// As [`signing::verifier`], [`open_sources`], [`Accounts::of`] and [`Tokens::of`].
///
/// # Safety
/// In a statement; the tables of the library are in this schema.
unsafe fn judge(
    schema: pg_sys::Oid,
    link: Option<Text<'_>>,
) -> Result<Option<pg_sys::Datum>, ErrorReport> {
    // First, so that a server without keys says so whatever it is asked.
    let verifier = signing::verifier()?;
    let Some(link) = link.and_then(signing::parse) else {
        return Ok(None);
    };
    // SAFETY: by the caller's word.
    let (accounts, tokens) = unsafe { open_sources(schema) }?;
    let (accounts, tokens) = (Accounts::of(accounts)?, Tokens::of(tokens, &BY_SECRET)?);
    let wanted = link.secret().as_slice();
    // SAFETY: by the caller's word; a bytea, and there is memory for one.
    let next = unsafe {
        let secret = wanted.into_datum().unwrap_or(pg_sys::Datum::null());
        tokens.first(secret)
    };
    let Some(token) = next else {
        // Behind the last token. Nobody is account 0.
        verifier.accepts(&link, Purpose::Activation);
        // SAFETY: by the caller's word; a bigint.
        unsafe { accounts.first(pg_sys::Datum::from(0_i64)) };
        return Ok(None);
    };
    let action = token.action();
    let (code, secret) = (token.code(), token.secret());
    // SAFETY: a text and a bytea.
    let (code, secret) = unsafe {
        (
            code.as_ref().map(|code| bytes(code)),
            secret.as_ref().map(|secret| bytes(secret)),
        )
    };
    // The MAC of a recovery covers its code, so the one that was mailed is put in.
    let code = code
        .and_then(signing::code)
        .filter(|_| action == Some(Action::PasswordRecovery));
    let purpose = match code {
        Some(code) => Purpose::PasswordRecovery { code },
        None => Purpose::Activation,
    };
    let is_genuine = verifier.accepts(&link, purpose);
    // SAFETY: by the caller's word; a bigint.
    let account = unsafe {
        let id = token.account().unwrap_or(pg_sys::Datum::from(0_i64));
        accounts.first(id)
    };
    let is_good = token.is_good(account.as_ref());
    let is_it = secret == Some(wanted) && (action == Some(Action::Activation) || code.is_some());
    Ok((is_genuine && is_it && is_good).then(|| token.into_datum()))
}

/// `_judge_link(text)` of `70_redeem.sql`.
#[pg_guard]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _judge_link_wrapper(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: what the server called with, for a function of one text in the schema of the library's tables.
    unsafe {
        let token = judge(schema_of(fcinfo), pgrx::pg_getarg(fcinfo, 0)).unwrap_or_report();
        token.unwrap_or_else(|| pgrx::pg_return_null(fcinfo))
    }
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__judge_link_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}
