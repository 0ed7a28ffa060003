//! Judging a link: the token behind it, if the link is genuine and still good.
//!
//! Peeking and redeeming ask this of whatever comes in, and most of what comes in from outside may be forged. So it is
//! done here, by two readings of a unique key, and not by a statement, which was a third of what a redemption cost.
//! What is not good gives one answer, after the same work: the key is followed to the next row there is, so that an
//! unknown token takes the same reading and verifying as one that is forged, used or expired.
//!
//! Nothing is locked and nothing promised: who acts on the answer locks the rows and looks again.

use std::ffi::CStr;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use crate::server;
use crate::signing::{self, Text};
use crate::token::Purpose;
use crate::trigger::{Column, Kind, VERSION_1, bytes, is_label};

/// A table of the library's own, open until this goes; its lock stays until the end of the transaction.
///
/// A lock alone does not keep the server from reading the description of a table anew, in another place.
struct Table(pg_sys::Relation);

/// A row of such a table.
struct Row<'table> {
    table: &'table Table,
    tuple: pg_sys::HeapTuple,
}

/// How a row is looked for: by a unique key of one column, with an operator of its B-tree, which has a strategy and a
/// function behind it.
struct Search {
    column: &'static CStr,
    kind: Kind,
    strategy: u32,
    function: u32,
}

/// This secret, or the next there is.
const BY_SECRET: Search = Search {
    column: c"secret",
    kind: Kind::Bytea,
    strategy: pg_sys::BTGreaterEqualStrategyNumber,
    function: pg_sys::F_BYTEAGE,
};
const BY_ID: Search = Search {
    column: c"id",
    kind: Kind::BigInt,
    strategy: pg_sys::BTEqualStrategyNumber,
    function: pg_sys::F_INT8EQ,
};

const LOCK: i32 = pg_sys::AccessShareLock as i32;

impl Table {
    /// # Errors
    /// XX000 when the schema has no such table.
    ///
    /// # Safety
    /// In a statement.
    unsafe fn open(schema: pg_sys::Oid, name: &CStr) -> Result<Self, ErrorReport> {
        // SAFETY: by the caller's word; the name is NUL-terminated.
        unsafe {
            match pg_sys::get_relname_relid(name.as_ptr(), schema) {
                pg_sys::InvalidOid => Err(altered(name, "It is not there.".to_owned())),
                table => Ok(Self(pg_sys::table_open(table, LOCK))),
            }
        }
    }

    fn description(&self) -> pg_sys::TupleDesc {
        // SAFETY: the relation is open.
        unsafe { (*self.0).rd_att }
    }

    fn name(&self) -> &CStr {
        // SAFETY: the relation is open, and names are NUL-terminated.
        unsafe { CStr::from_ptr((*(*self.0).rd_rel).relname.data.as_ptr()) }
    }

    /// # Errors
    /// XX000 when it has none of this name and type.
    fn column(&self, name: &CStr, kind: Kind) -> Result<Column, ErrorReport> {
        // SAFETY: the relation is open.
        unsafe { Column::find(self.description(), name, kind) }
            .map_err(|detail| altered(self.name(), detail))
    }

    /// The index, opened, that keeps a column unique by itself, for all rows, smallest values first.
    fn unique_index(&self, column: Column) -> Option<pg_sys::Relation> {
        // SAFETY: the relation is open; the list is of oids; an index has a row in pg_index, and an option for each of
        // its columns.
        unsafe {
            let all = pgrx::PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(self.0));
            all.iter_oid().find_map(|oid| {
                let index = pg_sys::index_open(oid, LOCK);
                let about = &*(*index).rd_index;
                let serves = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
                    && about.indisunique
                    && about.indisvalid
                    && about.indnkeyatts == 1
                    && about.indkey.values.as_slice(1)[0] == column.number()
                    && *(*index).rd_indoption & pg_sys::INDOPTION_DESC as i16 == 0
                    && pg_sys::RelationGetIndexPredicate(index).is_null();
                if !serves {
                    pg_sys::index_close(index, LOCK);
                }
                serves.then_some(index)
            })
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: opened in `open`, and nobody has it any more.
        unsafe { pg_sys::table_close(self.0, pg_sys::NoLock as i32) };
    }
}

impl<'table> Row<'table> {
    /// The first row, in the order of the key, that the search finds and the statement sees.
    ///
    /// # Errors
    /// XX000 when there is no such column or key.
    ///
    /// # Safety
    /// In a statement, with a value of the key's type.
    unsafe fn first(
        table: &'table Table,
        search: &Search,
        value: pg_sys::Datum,
    ) -> Result<Option<Self>, ErrorReport> {
        let column = table.column(search.column, search.kind)?;
        // REINDEX CONCURRENTLY may have put another in its place just now; then that is there at the second look.
        let index = table
            .unique_index(column)
            .or_else(|| table.unique_index(column));
        let index = index.ok_or_else(|| {
            let column = search.column.to_string_lossy();
            let detail = format!("It has no unique key of \"{column}\" alone, in ascending order.");
            altered(table.name(), detail)
        })?;
        // SAFETY: by the caller's word. The table is open for as long as the row is there, the index until it was
        // read, and the tuple is copied by then. Zeroed memory is for the server to fill in.
        unsafe {
            let mut wanted: pg_sys::ScanKeyData = std::mem::zeroed();
            pg_sys::ScanKeyInit(
                &raw mut wanted,
                column.number(),
                search.strategy as pg_sys::StrategyNumber,
                pg_sys::Oid::from(search.function),
                value,
            );
            let scan = pg_sys::systable_beginscan_ordered(
                table.0,
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
            Ok((!tuple.is_null()).then_some(Self { table, tuple }))
        }
    }

    /// A value of the row; `None` for null.
    ///
    /// # Errors
    /// XX000 when the table has no such column.
    fn get(&self, name: &CStr, kind: Kind) -> Result<Option<pg_sys::Datum>, ErrorReport> {
        let column = self.table.column(name, kind)?;
        // SAFETY: the tuple is of the table, which is open.
        Ok(unsafe { column.value(self.tuple, self.table.description()) })
    }

    /// Whether this column, of an enum, has this label.
    fn is(&self, name: &CStr, label: &CStr) -> Result<bool, ErrorReport> {
        let value = self.get(name, Kind::Enum)?;
        Ok(value.is_some_and(|value| is_label(value, label)))
    }

    /// The row as a value of its table's type.
    fn into_datum(self) -> pg_sys::Datum {
        // SAFETY: the tuple is of the table, which is open.
        unsafe { pg_sys::heap_copy_tuple_as_datum(self.tuple, self.table.description()) }
    }
}

fn altered(table: &CStr, detail: String) -> ErrorReport {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        format!("the table {} is not as mailroom made it", table.to_string_lossy()),
        function_name!(),
    )
    .set_detail(detail)
    .set_hint("Links are looked up in tokens by secret, and in accounts by id. Put back what was dropped or altered, for instance: ALTER TABLE tokens ADD CONSTRAINT tokens_secret_key UNIQUE (secret).")
}

/// The token behind a link that is genuine and good, as a value of its table's type.
///
/// # Errors
/// As [`signing::verifier`], [`Table::open`] and [`Row::first`].
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
    // In the order in which everybody locks the two.
    // SAFETY: by the caller's word.
    let (accounts, tokens) = unsafe {
        (
            Table::open(schema, c"accounts")?,
            Table::open(schema, c"tokens")?,
        )
    };
    let wanted = link.secret().as_slice();
    // SAFETY: by the caller's word; a bytea, and there is memory for one.
    let next = unsafe {
        let secret = wanted.into_datum().unwrap_or(pg_sys::Datum::null());
        Row::first(&tokens, &BY_SECRET, secret)?
    };
    let Some(token) = next else {
        // Behind the last token. Nobody is account 0.
        verifier.accepts(&link, Purpose::Activation);
        // SAFETY: by the caller's word; a bigint.
        unsafe { Row::first(&accounts, &BY_ID, pg_sys::Datum::from(0_i64))? };
        return Ok(None);
    };
    let is_activation = token.is(c"action", c"activation")?;
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
    let code = code.and_then(signing::code).filter(|_| is_recovery);
    let purpose = match code {
        Some(code) => Purpose::PasswordRecovery { code },
        None => Purpose::Activation,
    };
    let is_genuine = verifier.accepts(&link, purpose);
    let holder = token.get(c"account", Kind::BigInt)?;
    // SAFETY: by the caller's word; a bigint.
    let account = unsafe {
        let id = holder.unwrap_or(pg_sys::Datum::from(0_i64));
        Row::first(&accounts, &BY_ID, id)?
    };
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
    let is_it = secret == Some(wanted) && (is_activation || code.is_some());
    Ok((is_genuine && is_it && !is_used && is_eligible && is_open).then(|| token.into_datum()))
}

/// `_judge_link(text)` of `70_redeem.sql`.
#[pg_guard]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _judge_link_wrapper(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: what the server called with, for a function of one text in the schema of the library's tables.
    unsafe {
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let token = judge(schema, pgrx::pg_getarg(fcinfo, 0)).unwrap_or_report();
        token.unwrap_or_else(|| pgrx::pg_return_null(fcinfo))
    }
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__judge_link_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}
