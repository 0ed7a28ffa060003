//! Judging a link: the token behind it, if the link is genuine and still good.
//!
//! Peeking and redeeming ask this of whatever comes in, and most of what comes in from outside may be forged. So it is
//! done here, by two readings of a unique key, and not by a statement, which was a third of what a redemption cost.
//! What is not good gives one answer, after the same work: the key is followed to the next row there is, so that an
//! unknown token takes the same reading and verifying as one that is forged, used or expired.
//!
//! Nothing is locked and nothing promised: who acts on the answer locks the rows and looks again.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::server;
use crate::signing::{self, Text};
use crate::token::Purpose;
use crate::trigger::{Column, Kind, VERSION_1, bytes, is_label};

const FUNCTION: &str = "_judge_link";

/// A row of a table of the library's own.
struct Row {
    relation: pg_sys::Relation,
    tuple: pg_sys::HeapTuple,
}

/// Where a row is looked for: a unique key of one column.
struct Key {
    table: &'static CStr,
    column: &'static CStr,
    kind: Kind,
}

/// Which row of a key, by an operator of its B-tree: the strategy and the function behind it.
struct Condition {
    strategy: u32,
    function: u32,
}

const SECRETS: Key = Key {
    table: c"tokens",
    column: c"secret",
    kind: Kind::Bytea,
};
const IDS: Key = Key {
    table: c"accounts",
    column: c"id",
    kind: Kind::BigInt,
};
const THIS_OR_NEXT: Condition = Condition {
    strategy: pg_sys::BTGreaterEqualStrategyNumber,
    function: pg_sys::F_BYTEAGE,
};
const THIS: Condition = Condition {
    strategy: pg_sys::BTEqualStrategyNumber,
    function: pg_sys::F_INT8EQ,
};

impl Row {
    /// The first row, in the order of the key, that meets the condition and is visible to the statement.
    ///
    /// # Errors
    /// 39P01 when the table has no such column, XX000 when it has no such key.
    ///
    /// # Safety
    /// In a statement. The key is in this schema, and the value of its type.
    unsafe fn first(
        schema: pg_sys::Oid,
        key: &Key,
        condition: &Condition,
        value: pg_sys::Datum,
    ) -> Result<Option<Self>, ErrorReport> {
        const LOCK: i32 = pg_sys::AccessShareLock as i32;
        // SAFETY: by the caller's word. Both relations are locked until the end of the transaction, and the tuple is
        // copied before the scan ends. Zeroed memory is for the server to fill in.
        unsafe {
            let table = pg_sys::get_relname_relid(key.table.as_ptr(), schema);
            let relation = pg_sys::table_open(table, LOCK);
            let column = Column::of((*relation).rd_att, key.column, key.kind, FUNCTION)?;
            let index = unique_index(relation, column).ok_or_else(|| without_key(key))?;
            let mut wanted: pg_sys::ScanKeyData = std::mem::zeroed();
            pg_sys::ScanKeyInit(
                &raw mut wanted,
                column.number(),
                condition.strategy as pg_sys::StrategyNumber,
                pg_sys::Oid::from(condition.function),
                value,
            );
            let scan = pg_sys::systable_beginscan_ordered(
                relation,
                index,
                pg_sys::GetActiveSnapshot(),
                1,
                &raw mut wanted,
            );
            let found =
                pg_sys::systable_getnext_ordered(scan, pg_sys::ScanDirection::ForwardScanDirection);
            let tuple = pg_sys::heap_copytuple(found);
            pg_sys::systable_endscan_ordered(scan);
            pg_sys::index_close(index, pg_sys::NoLock as i32);
            pg_sys::table_close(relation, pg_sys::NoLock as i32);
            Ok((!tuple.is_null()).then_some(Self { relation, tuple }))
        }
    }

    /// A value of the row; `None` for null.
    ///
    /// # Errors
    /// 39P01 when the table has no such column.
    fn get(&self, name: &CStr, kind: Kind) -> Result<Option<pg_sys::Datum>, ErrorReport> {
        let mut is_null = false;
        // SAFETY: the relation's description is there for as long as its lock; the tuple is of it.
        let value = unsafe {
            let descriptor = (*self.relation).rd_att;
            let column = Column::of(descriptor, name, kind, FUNCTION)?;
            let number = i32::from(column.number());
            pg_sys::htup::heap_getattr(self.tuple, number, descriptor, &mut is_null)
        };
        Ok((!is_null).then_some(value))
    }

    /// Whether this column, of an enum, has this label.
    fn is(&self, name: &CStr, label: &CStr) -> Result<bool, ErrorReport> {
        let value = self.get(name, Kind::Enum)?;
        Ok(value.is_some_and(|value| is_label(value, label)))
    }

    /// The row as a value of its table's type.
    fn into_datum(self) -> pg_sys::Datum {
        // SAFETY: the tuple is of the relation, whose description is there for as long as its lock.
        unsafe { pg_sys::heap_copy_tuple_as_datum(self.tuple, (*self.relation).rd_att) }
    }
}

/// The index, opened, that keeps a column unique by itself, for all rows.
///
/// # Safety
/// The relation is open, and the column one of it.
unsafe fn unique_index(relation: pg_sys::Relation, column: Column) -> Option<pg_sys::Relation> {
    const LOCK: i32 = pg_sys::AccessShareLock as i32;
    // SAFETY: by the caller's word; the list is of oids, and an index has a row in pg_index.
    unsafe {
        let all = pgrx::PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation));
        all.iter_oid().find_map(|oid| {
            let index = pg_sys::index_open(oid, LOCK);
            let about = &*(*index).rd_index;
            let serves = about.indisunique
                && about.indisvalid
                && about.indnkeyatts == 1
                && about.indkey.values.as_slice(1)[0] == column.number()
                && pg_sys::RelationGetIndexPredicate(index).is_null();
            if !serves {
                pg_sys::index_close(index, LOCK);
            }
            serves.then_some(index)
        })
    }
}

fn without_key(key: &Key) -> ErrorReport {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        format!(
            "the table {} has no unique key of {}",
            key.table.to_string_lossy(),
            key.column.to_string_lossy()
        ),
        function_name!(),
    )
    .set_hint("It came with the extension. If it was dropped, or is being rebuilt, make it anew.")
}

/// The token behind a link that is genuine and good.
///
/// # Safety
/// In a statement; the tables of the library are in this schema.
unsafe fn judge(schema: pg_sys::Oid, link: Option<Text<'_>>) -> Result<Option<Row>, ErrorReport> {
    // First, so that a server without keys says so whatever it is asked.
    let verifier = signing::verifier()?;
    let Some(link) = link.and_then(signing::parse) else {
        return Ok(None);
    };
    // SAFETY: by the caller's word; a bytea.
    let next = unsafe {
        let secret = link.secret().as_slice().into_datum();
        Row::first(
            schema,
            &SECRETS,
            &THIS_OR_NEXT,
            secret.unwrap_or(pg_sys::Datum::null()),
        )?
    };
    let Some(token) = next else {
        verifier.accepts(&link, Purpose::Activation);
        return Ok(None);
    };
    let is_recovery = token.is(c"action", c"password_recovery")?;
    let code = token.get(c"code", Kind::Text)?;
    let secret = token.get(c"secret", Kind::Bytea)?;
    // SAFETY: a text and a bytea.
    let (code, secret) = unsafe {
        (
            code.as_ref().map(|code| bytes(code)),
            secret.as_ref().map(|secret| bytes(secret)),
        )
    };
    // The MAC of a recovery covers its code, so the one that was mailed is put in.
    let purpose = match code.and_then(signing::code).filter(|_| is_recovery) {
        Some(code) => Purpose::PasswordRecovery { code },
        None => Purpose::Activation,
    };
    let is_genuine = verifier.accepts(&link, purpose);
    let Some(holder) = token.get(c"account", Kind::BigInt)? else {
        return Ok(None);
    };
    // SAFETY: by the caller's word; a bigint.
    let account = unsafe { Row::first(schema, &IDS, &THIS, holder)? };
    // As in _handout.
    let eligible = if is_recovery {
        c"active"
    } else {
        c"provisioned"
    };
    let is_eligible = match &account {
        Some(account) => account.is(c"status", eligible)?,
        None => false,
    };
    let is_used = token.get(c"consumed_at", Kind::BigInt)?.is_some()
        || token.get(c"revoked_at", Kind::BigInt)?.is_some();
    let expires_at = token.get(c"expires_at", Kind::BigInt)?;
    let is_open = expires_at.is_some_and(|time| time.value() as i64 > server::epoch());
    let is_it = secret == Some(link.secret().as_slice());
    Ok((is_genuine && is_it && !is_used && is_eligible && is_open).then_some(token))
}

/// `_judge_link(text)` of `70_redeem.sql`.
#[pg_guard]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _judge_link_wrapper(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: what the server called with, for a function of one text in the schema of the library's tables.
    unsafe {
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        match judge(schema, pgrx::pg_getarg(fcinfo, 0)) {
            Ok(Some(token)) => token.into_datum(),
            Ok(None) => pgrx::pg_return_null(fcinfo),
            Err(error) => {
                error.report(PgLogLevel::ERROR);
                pgrx::pg_return_null(fcinfo)
            }
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__judge_link_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}
