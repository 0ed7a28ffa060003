//! AFTER triggers for each statement: the rows that it stored or changed.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::trigger_support::{
    trigger_fired_after, trigger_fired_by_insert, trigger_fired_by_update,
    trigger_fired_for_statement,
};

use super::{Column, Kind, called_with, misused};
use crate::server;

/// The rows of a transition table.
pub struct NewRows {
    relation: pg_sys::Relation,
    rows: *mut pg_sys::Tuplestorestate,
}

/// One of them.
pub struct Stored {
    slot: *mut pg_sys::TupleTableSlot,
}

impl NewRows {
    /// The rows that a trigger function was called for.
    ///
    /// # Errors
    /// 39P01 when it was not called as an AFTER trigger, for each statement, of INSERT, with a transition table.
    ///
    /// # Safety
    /// `fcinfo` is what the server called the function with, and the call lasts.
    pub unsafe fn of(
        fcinfo: pg_sys::FunctionCallInfo,
        function: &'static str,
    ) -> Result<Self, ErrorReport> {
        let is_one = |data: &pg_sys::TriggerData| trigger_fired_by_insert(data.tg_event);
        // SAFETY: by the caller's word.
        unsafe { after_statement(fcinfo, function, "INSERT, REFERENCING NEW TABLE", is_one) }
            .map(Self::in_table)
    }

    fn in_table(data: &pg_sys::TriggerData) -> Self {
        Self {
            relation: data.tg_relation,
            rows: data.tg_newtable,
        }
    }

    /// Whether nothing that could have changed the rows ran since they were stored.
    ///
    /// To see them it would have had to be a later command of the transaction, and there was none since the statement
    /// took its snapshot.
    pub fn are_untouched(&self) -> bool {
        // SAFETY: the statement runs, so its snapshot is active.
        unsafe {
            pg_sys::ActiveSnapshotSet()
                && (*pg_sys::GetActiveSnapshot()).curcid == pg_sys::GetCurrentCommandId(false)
        }
    }

    /// As [`Column::of`].
    ///
    /// # Errors
    /// As there.
    pub fn column(
        &self,
        name: &CStr,
        kind: Kind,
        function: &'static str,
    ) -> Result<Column, ErrorReport> {
        // SAFETY: the relation is open.
        unsafe { Column::of((*self.relation).rd_att, name, kind, function) }
    }

    /// Shows each row, from the first to the last.
    pub fn for_each(&self, mut see: impl FnMut(&Stored)) {
        // SAFETY: the table has rows of the relation.
        let mut rows = unsafe { Reading::begin(self.relation, self.rows) };
        while let Some(row) = rows.next() {
            see(row);
        }
    }
}

/// The rows of an UPDATE, as they were and as they are.
pub struct Changes {
    /// As they are.
    pub new: NewRows,
    old: *mut pg_sys::Tuplestorestate,
}

impl Changes {
    /// The rows that a trigger function was called for.
    ///
    /// # Errors
    /// 39P01 when it was not called as an AFTER trigger, for each statement, of UPDATE, with both transition tables.
    ///
    /// # Safety
    /// As of [`NewRows::of`].
    pub unsafe fn of(
        fcinfo: pg_sys::FunctionCallInfo,
        function: &'static str,
    ) -> Result<Self, ErrorReport> {
        let is_one = |data: &pg_sys::TriggerData| {
            trigger_fired_by_update(data.tg_event) && !data.tg_oldtable.is_null()
        };
        let event = "UPDATE, REFERENCING OLD TABLE and NEW TABLE";
        // SAFETY: by the caller's word.
        unsafe { after_statement(fcinfo, function, event, is_one) }.map(|data| Self {
            new: NewRows::in_table(data),
            old: data.tg_oldtable,
        })
    }

    /// Whether this holds of any row, as it was and as it is. The server keeps the two tables in the same order.
    pub fn any(&self, mut holds: impl FnMut(&Stored, &Stored) -> bool) -> bool {
        // SAFETY: the tables have rows of the relation.
        let (mut old, mut new) = unsafe {
            (
                Reading::begin(self.new.relation, self.old),
                Reading::begin(self.new.relation, self.new.rows),
            )
        };
        while let (Some(old), Some(new)) = (old.next(), new.next()) {
            if holds(old, new) {
                return true;
            }
        }
        false
    }
}

/// What a trigger function was called with: as an AFTER trigger for each statement, with a table of new rows, of the
/// event that `is_one` knows and `event` names.
///
/// # Errors
/// 39P01 when it was not.
///
/// # Safety
/// As of [`NewRows::of`].
unsafe fn after_statement<'call>(
    fcinfo: pg_sys::FunctionCallInfo,
    function: &'static str,
    event: &str,
    is_one: impl FnOnce(&pg_sys::TriggerData) -> bool,
) -> Result<&'call pg_sys::TriggerData, ErrorReport> {
    // SAFETY: by the caller's word.
    let data = unsafe { called_with(fcinfo) }.filter(|data| {
        trigger_fired_for_statement(data.tg_event)
            && trigger_fired_after(data.tg_event)
            && !data.tg_newtable.is_null()
            && is_one(data)
    });
    data.ok_or_else(|| {
        let detail =
            format!("It was not called as an AFTER trigger, FOR EACH STATEMENT, of {event}.");
        misused(function, detail)
    })
}

/// A transition table that is being read. Its slot goes with it.
struct Reading {
    rows: *mut pg_sys::Tuplestorestate,
    row: Stored,
}

impl Reading {
    /// # Safety
    /// The table has rows of the relation, and both are there for as long as this.
    unsafe fn begin(relation: pg_sys::Relation, rows: *mut pg_sys::Tuplestorestate) -> Self {
        // SAFETY: by the caller's word; a transition table may be read any number of times.
        unsafe {
            pg_sys::tuplestore_select_read_pointer(rows, 0);
            pg_sys::tuplestore_rescan(rows);
            let slot = pg_sys::MakeSingleTupleTableSlot(
                (*relation).rd_att,
                &raw const pg_sys::TTSOpsMinimalTuple,
            );
            Self {
                rows,
                row: Stored { slot },
            }
        }
    }

    /// The next row, in the place of the one before.
    fn next(&mut self) -> Option<&Stored> {
        // SAFETY: the slot is for rows of this table.
        let found =
            unsafe { pg_sys::tuplestore_gettupleslot(self.rows, true, false, self.row.slot) };
        found.then_some(&self.row)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if server::is_failing() {
            return;
        }
        // SAFETY: made in `begin`, and nobody has it any more.
        unsafe { pg_sys::ExecDropSingleTupleTableSlot(self.row.slot) };
    }
}

impl Stored {
    /// The value in a column of the rows; `None` for null.
    pub fn get(&self, column: Column) -> Option<pg_sys::Datum> {
        // SAFETY: the column is one of the slot's, whose arrays are filled up to the asked for number.
        unsafe {
            if i32::from((*self.slot).tts_nvalid) < column.number {
                pg_sys::slot_getsomeattrs_int(self.slot, column.number);
            }
            let index = usize::try_from(column.number - 1).ok()?;
            (!*(*self.slot).tts_isnull.add(index)).then(|| *(*self.slot).tts_values.add(index))
        }
    }
}
