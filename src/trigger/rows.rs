//! AFTER triggers for each statement: the rows that it stored.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::trigger_support::{
    called_as_trigger, trigger_fired_after, trigger_fired_by_insert, trigger_fired_for_statement,
};

use super::{Column, Kind, misused};

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
        // SAFETY: the node's tag says that it is the data of a trigger's call, whose parts the server has
        // filled in for the event that it names.
        unsafe {
            if called_as_trigger(fcinfo) {
                let data = &*(*fcinfo).context.cast::<pg_sys::TriggerData>();
                let event = data.tg_event;
                if trigger_fired_for_statement(event)
                    && trigger_fired_after(event)
                    && trigger_fired_by_insert(event)
                    && !data.tg_newtable.is_null()
                {
                    return Ok(Self {
                        relation: data.tg_relation,
                        rows: data.tg_newtable,
                    });
                }
            }
        }
        Err(misused(
            function,
            "It was not called as an AFTER trigger, FOR EACH STATEMENT, of INSERT, REFERENCING NEW TABLE."
                .to_owned(),
        ))
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
        // SAFETY: the table has rows of the relation, and may be read any number of times. Each row is looked
        // at before the next one takes its place in the slot, which is dropped at the end; in case of an error
        // the server does that.
        unsafe {
            let slot = pg_sys::MakeSingleTupleTableSlot(
                (*self.relation).rd_att,
                &raw const pg_sys::TTSOpsMinimalTuple,
            );
            pg_sys::tuplestore_select_read_pointer(self.rows, 0);
            pg_sys::tuplestore_rescan(self.rows);
            while pg_sys::tuplestore_gettupleslot(self.rows, true, false, slot) {
                see(&Stored { slot });
            }
            pg_sys::ExecDropSingleTupleTableSlot(slot);
        }
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
