//! Tables of the library's own, read without a statement: a row by a unique key.
//!
//! A statement of one row spends most of its work on itself. Two readings of a key are enough to judge a link, and as
//! many to hand a token out.

use std::ffi::CStr;

use pgrx::prelude::*;

use crate::server;
use crate::trigger::{Column, Kind};

/// A relation, open until this goes.
struct Open(pg_sys::Relation);

/// A table of the library's own, open until this goes; its lock stays until the end of the transaction.
///
/// A lock alone does not keep the server from reading the description of a table anew, in another place.
pub struct Table(Open);

/// An index of such a table, open until this goes.
pub struct Index(Open);

/// A table with the index by which its rows are looked for.
pub struct Key {
    index: Index,
    table: Table,
    column: Column,
    search: &'static Search,
}

/// A row of such a table.
pub struct Row<'table> {
    table: &'table Table,
    tuple: pg_sys::HeapTuple,
}

/// How a row is looked for: by a unique key of one column, with an operator of its B-tree, which has a strategy and a
/// function behind it.
pub struct Search {
    pub column: &'static CStr,
    pub kind: Kind,
    pub strategy: u32,
    pub function: u32,
}

/// What a table lacks of what mailroom gave it.
pub struct Altered {
    pub table: String,
    /// For the DETAIL of an error.
    pub detail: String,
}

/// The lock of those who only read.
pub const READING: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

/// The row with this id.
pub const BY_ID: Search = Search {
    column: c"id",
    kind: Kind::BigInt,
    strategy: pg_sys::BTEqualStrategyNumber,
    function: pg_sys::F_INT8EQ,
};

/// The schema of the function that was called with this.
///
/// # Safety
/// What the server called a function with.
pub unsafe fn schema_of(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Oid {
    // SAFETY: by the caller's word.
    unsafe { pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid) }
}

/// Whether this is a table in the server's own heap whose rows neither a policy nor a rule has a say in.
///
/// # Safety
/// The relation is open.
pub unsafe fn is_simple(relation: pg_sys::Relation) -> bool {
    // SAFETY: by the caller's word.
    unsafe {
        let class = &*(*relation).rd_rel;
        class.relkind as u8 == pg_sys::RELKIND_RELATION
            && class.relam == pg_sys::HEAP_TABLE_AM_OID
            && !class.relispartition
            && !class.relrowsecurity
            && (*relation).rd_rules.is_null()
    }
}

/// What a value of a column is compared with, by an operator of its B-tree: strategy, function and right side.
///
/// # Safety
/// In a statement; the value is of the type that the function takes.
pub unsafe fn condition(
    column: pg_sys::AttrNumber,
    strategy: u32,
    function: u32,
    value: pg_sys::Datum,
) -> pg_sys::ScanKeyData {
    // SAFETY: by the caller's word; zeroed memory is for the server to fill in.
    unsafe {
        let mut condition = std::mem::zeroed();
        pg_sys::ScanKeyInit(
            &raw mut condition,
            column,
            strategy as pg_sys::StrategyNumber,
            pg_sys::Oid::from(function),
            value,
        );
        condition
    }
}

impl Altered {
    fn new(table: &CStr, detail: String) -> Self {
        let table = table.to_string_lossy().into_owned();
        Self { table, detail }
    }
}

impl Table {
    /// Opens the table of this name, and locks it.
    ///
    /// # Errors
    /// When the schema has none.
    ///
    /// # Safety
    /// In a statement.
    pub unsafe fn open(
        schema: pg_sys::Oid,
        name: &CStr,
        lock: pg_sys::LOCKMODE,
    ) -> Result<Self, Altered> {
        // SAFETY: by the caller's word; the name is NUL-terminated.
        unsafe {
            loop {
                let table = pg_sys::get_relname_relid(name.as_ptr(), schema);
                if table == pg_sys::InvalidOid {
                    return Err(Altered::new(name, "It is not there.".to_owned()));
                }
                let relation = pg_sys::try_relation_open(table, lock);
                if relation.is_null() {
                    continue;
                }
                // While the lock was waited for, another may have come to this name.
                if pg_sys::get_relname_relid(name.as_ptr(), schema) == table {
                    return Ok(Self(Open(relation)));
                }
                pg_sys::relation_close(relation, lock);
            }
        }
    }

    pub fn id(&self) -> pg_sys::Oid {
        // SAFETY: the relation is open.
        unsafe { (*self.relation()).rd_id }
    }

    /// The open relation, for as long as this is there.
    pub fn relation(&self) -> pg_sys::Relation {
        self.0.0
    }

    /// Whether the current user may do all of this with it: `ACL_SELECT` and the like.
    pub fn may(&self, rights: u32) -> bool {
        let rights = pg_sys::AclMode::from(rights);
        // SAFETY: the relation is open.
        let granted = unsafe {
            pg_sys::pg_class_aclmask(
                self.id(),
                pg_sys::GetUserId(),
                rights,
                pg_sys::AclMaskHow::ACLMASK_ALL,
            )
        };
        granted == rights
    }

    /// Whether rows are stored and found as in a table that the extension made: no policy, rule or child has a say.
    pub fn is_plain(&self) -> bool {
        // SAFETY: the relation is open.
        unsafe { is_simple(self.relation()) && !(*(*self.relation()).rd_rel).relhassubclass }
    }

    /// Whether there are triggers of this event, `TRIGGER_TYPE_DELETE` or the like.
    pub fn has_triggers(&self, event: u32) -> bool {
        // SAFETY: the relation is open; there are `numtriggers` of them.
        unsafe {
            let triggers = (*self.relation()).trigdesc;
            !triggers.is_null()
                && (0..usize::try_from((*triggers).numtriggers).unwrap_or(0)).any(|at| {
                    let trigger = &*(*triggers).triggers.add(at);
                    u32::from(trigger.tgtype.cast_unsigned()) & event != 0
                })
        }
    }

    fn description(&self) -> pg_sys::TupleDesc {
        // SAFETY: the relation is open.
        unsafe { (*self.relation()).rd_att }
    }

    fn name(&self) -> &CStr {
        // SAFETY: the relation is open, and names are NUL-terminated.
        unsafe { CStr::from_ptr((*(*self.relation()).rd_rel).relname.data.as_ptr()) }
    }

    /// # Errors
    /// When it has none of this name and type.
    pub fn column(&self, name: &CStr, kind: Kind) -> Result<Column, Altered> {
        // SAFETY: the relation is open.
        unsafe { Column::find(self.description(), name, kind) }
            .map_err(|detail| Altered::new(self.name(), detail))
    }

    /// The value of an enum's column that has this label.
    ///
    /// # Errors
    /// When there is none.
    pub fn label(&self, column: Column, label: &CStr) -> Result<pg_sys::Oid, Altered> {
        server::enum_value(column.of_type(), label).ok_or_else(|| {
            let label = label.to_string_lossy();
            Altered::new(self.name(), format!("An enum of it has no \"{label}\"."))
        })
    }

    /// The index, opened, that keeps just these columns unique, for all rows, smallest values first.
    pub fn unique_index(&self, columns: &[Column]) -> Option<Index> {
        // SAFETY: the relation is open; the list is of oids; an index has a row in pg_index, and an option for each of
        // its columns.
        unsafe {
            let count = columns.len();
            let is_descending = |option: &i16| option & pg_sys::INDOPTION_DESC as i16 != 0;
            let all =
                pgrx::PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(self.relation()));
            all.iter_oid().find_map(|oid| {
                let index = pg_sys::index_open(oid, READING);
                let about = &*(*index).rd_index;
                let serves = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
                    && about.indisunique
                    && about.indisvalid
                    && usize::try_from(about.indnkeyatts).is_ok_and(|keys| keys == count)
                    && columns.iter().map(|column| column.number()).eq(about
                        .indkey
                        .values
                        .as_slice(count)
                        .iter()
                        .copied())
                    && !std::slice::from_raw_parts((*index).rd_indoption, count)
                        .iter()
                        .any(is_descending)
                    && pg_sys::RelationGetIndexPredicate(index).is_null();
                if !serves {
                    pg_sys::index_close(index, READING);
                }
                serves.then(|| Index(Open(index)))
            })
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if server::is_failing() {
            return;
        }
        // SAFETY: it was open when this was made, and nobody has it any more.
        unsafe { pg_sys::relation_close(self.0, pg_sys::NoLock as i32) };
    }
}

impl Index {
    /// The open relation, for as long as this is there.
    pub fn relation(&self) -> pg_sys::Relation {
        self.0.0
    }
}

impl Key {
    /// The key of a table that a search goes by.
    ///
    /// # Errors
    /// When there is no such column or key.
    pub fn of(table: Table, search: &'static Search) -> Result<Self, Altered> {
        let column = table.column(search.column, search.kind)?;
        // REINDEX CONCURRENTLY may have put another in its place just now; then that is there at the second look.
        let index = table
            .unique_index(&[column])
            .or_else(|| table.unique_index(&[column]));
        let index = index.ok_or_else(|| {
            let column = search.column.to_string_lossy();
            let detail = format!("It has no unique key of \"{column}\" alone, in ascending order.");
            Altered::new(table.name(), detail)
        })?;
        Ok(Self {
            index,
            table,
            column,
            search,
        })
    }

    /// The first row, in the order of the key, that the search finds and the statement sees.
    ///
    /// # Safety
    /// In a statement, with a value of the key's type.
    pub unsafe fn first(&self, value: pg_sys::Datum) -> Option<Row<'_>> {
        let Search {
            strategy, function, ..
        } = *self.search;
        // SAFETY: by the caller's word. Table and index are open, and the tuple is copied before the scan ends.
        unsafe {
            let mut wanted = condition(self.column.number(), strategy, function, value);
            let scan = pg_sys::systable_beginscan_ordered(
                self.table.relation(),
                self.index.relation(),
                pg_sys::GetActiveSnapshot(),
                1,
                &raw mut wanted,
            );
            let found =
                pg_sys::systable_getnext_ordered(scan, pg_sys::ScanDirection::ForwardScanDirection);
            let tuple = pg_sys::heap_copytuple(found);
            pg_sys::systable_endscan_ordered(scan);
            (!tuple.is_null()).then_some(Row {
                table: &self.table,
                tuple,
            })
        }
    }
}

impl Row<'_> {
    /// The value of a column of this table; `None` for null.
    pub fn get(&self, column: Column) -> Option<pg_sys::Datum> {
        // SAFETY: the tuple is of the table, which is open.
        unsafe { column.value(self.tuple, self.table.description()) }
    }

    /// Whether this column, of an enum, has this value.
    pub fn is(&self, column: Column, value: pg_sys::Oid) -> bool {
        let found = self.get(column);
        found.is_some_and(|found| pg_sys::Oid::from(found.value() as u32) == value)
    }

    /// The row as a value of its table's type.
    pub fn into_datum(self) -> pg_sys::Datum {
        // SAFETY: the tuple is of the table, which is open.
        unsafe { pg_sys::heap_copy_tuple_as_datum(self.tuple, self.table.description()) }
    }
}
