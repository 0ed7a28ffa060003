//! Triggers for each row: the row that is about to be stored or has been, and how it is refused.

use std::ffi::{CStr, c_char};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::trigger_support::{
    trigger_fired_after, trigger_fired_before, trigger_fired_by_insert, trigger_fired_by_update,
    trigger_fired_for_row,
};

use super::{Column, Kind, bytes, called_with, misused};

/// Bytes of a refused value that a client is shown; the server shows as much of a column.
const SHOWN: i32 = 64;

/// A row on its way into a table, or that has come there.
pub struct NewRow {
    relation: pg_sys::Relation,
    tuple: pg_sys::HeapTuple,
    /// What it replaces, in an UPDATE; null in an INSERT.
    old: pg_sys::HeapTuple,
    /// The columns that an UPDATE names.
    assigned: *const pg_sys::Bitmapset,
}

/// Why a row is not stored, by the name that a constraint would have.
pub struct Violation {
    pub constraint: &'static CStr,
    /// What is to be done about it.
    pub hint: &'static CStr,
    /// The value, where it may be shown.
    pub value: Option<(&'static CStr, Column)>,
}

/// What the guarded part of a trigger function leaves to the part without a guard.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Answer {
    row: pg_sys::HeapTuple,
    refusal: *mut pg_sys::ErrorData,
}

// The server's own, without the guard that pgrx wraps it in, which would keep message, detail and hint of the
// error and drop the name of the constraint.
unsafe extern "C-unwind" {
    fn ThrowErrorData(data: *mut pg_sys::ErrorData);
}

impl Answer {
    /// Ends the trigger function: returns the row to be stored, or raises the error.
    ///
    /// # Safety
    /// The caller's frame and those up to the server's own hold nothing that would have to be dropped.
    pub unsafe fn give(self) -> pg_sys::Datum {
        if !self.refusal.is_null() {
            // SAFETY: complete, and allocated in the memory of the statement.
            unsafe { ThrowErrorData(self.refusal) };
        }
        pg_sys::Datum::from(self.row)
    }
}

impl NewRow {
    /// The row that a trigger function was called for.
    ///
    /// # Errors
    /// 39P01 when it was not called as a BEFORE trigger, for each row, of INSERT or UPDATE.
    ///
    /// # Safety
    /// `fcinfo` is what the server called the function with, and the call lasts.
    pub unsafe fn of(
        fcinfo: pg_sys::FunctionCallInfo,
        function: &'static str,
    ) -> Result<Self, ErrorReport> {
        // SAFETY: by the caller's word.
        if let Some(data) = unsafe { called_with(fcinfo) }
            && trigger_fired_for_row(data.tg_event)
            && trigger_fired_before(data.tg_event)
        {
            if trigger_fired_by_insert(data.tg_event) {
                return Ok(Self {
                    relation: data.tg_relation,
                    tuple: data.tg_trigtuple,
                    old: std::ptr::null_mut(),
                    assigned: std::ptr::null(),
                });
            }
            if trigger_fired_by_update(data.tg_event) {
                return Ok(Self::changed(data));
            }
        }
        Err(misused(
            function,
            "It was not called as a BEFORE trigger, FOR EACH ROW, of INSERT or UPDATE.".to_owned(),
        ))
    }

    /// The row that an UPDATE has stored, for which a trigger function was called.
    ///
    /// # Errors
    /// 39P01 when it was not called as an AFTER trigger, for each row, of UPDATE.
    ///
    /// # Safety
    /// As of [`Self::of`].
    pub unsafe fn stored(
        fcinfo: pg_sys::FunctionCallInfo,
        function: &'static str,
    ) -> Result<Self, ErrorReport> {
        // SAFETY: by the caller's word.
        if let Some(data) = unsafe { called_with(fcinfo) }
            && trigger_fired_for_row(data.tg_event)
            && trigger_fired_after(data.tg_event)
            && trigger_fired_by_update(data.tg_event)
        {
            return Ok(Self::changed(data));
        }
        Err(misused(
            function,
            "It was not called as an AFTER trigger, FOR EACH ROW, of UPDATE.".to_owned(),
        ))
    }

    /// The rows of an UPDATE.
    fn changed(data: &pg_sys::TriggerData) -> Self {
        Self {
            relation: data.tg_relation,
            tuple: data.tg_newtuple,
            old: data.tg_trigtuple,
            assigned: data.tg_updatedcols,
        }
    }

    /// Whether the row replaces another.
    pub fn is_update(&self) -> bool {
        !self.old.is_null()
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

    /// The value in the new row; `None` for null.
    pub fn get(&self, column: Column) -> Option<pg_sys::Datum> {
        // SAFETY: the tuple is the relation's, and the column one of it.
        unsafe { self.value(self.tuple, column) }
    }

    /// The value in the row that is replaced.
    pub fn get_old(&self, column: Column) -> Option<pg_sys::Datum> {
        // SAFETY: as above; there is such a row.
        unsafe {
            if self.old.is_null() {
                return None;
            }
            self.value(self.old, column)
        }
    }

    /// # Safety
    /// `tuple` is one of the relation's.
    unsafe fn value(&self, tuple: pg_sys::HeapTuple, column: Column) -> Option<pg_sys::Datum> {
        // SAFETY: by the caller's word.
        unsafe { column.value(tuple, (*self.relation).rd_att) }
    }

    /// Whether an UPDATE names this column.
    pub fn is_assigned(&self, column: Column) -> bool {
        let number = column.number - pg_sys::FirstLowInvalidHeapAttributeNumber;
        // SAFETY: the server's own set for the event, null when it is empty.
        unsafe { pg_sys::bms_is_member(number, self.assigned) }
    }

    /// Puts other values into the row; `None` is null.
    pub fn set<const N: usize>(&mut self, changes: [(Column, Option<pg_sys::Datum>); N]) {
        let mut numbers = changes.map(|(column, _)| column.number);
        let mut values = changes.map(|(_, value)| value.unwrap_or(pg_sys::Datum::from(0)));
        let mut nulls = changes.map(|(_, value)| value.is_none());
        // SAFETY: the columns are the relation's, the values of their types; the server copies what it needs.
        self.tuple = unsafe {
            pg_sys::heap_modify_tuple_by_cols(
                self.tuple,
                (*self.relation).rd_att,
                N as i32,
                numbers.as_mut_ptr(),
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            )
        };
    }

    /// Stores the row as it is now.
    pub fn accept(self) -> Answer {
        Answer {
            row: self.tuple,
            refusal: std::ptr::null_mut(),
        }
    }

    /// Refuses the row as a CHECK constraint does.
    pub fn refuse(self, violation: &Violation) -> Answer {
        // SAFETY: the relation is open. All memory comes from the server and is zeroed, which is a valid
        // ErrorData; the strings are NUL-terminated.
        let refusal = unsafe {
            let table = (*(*self.relation).rd_rel).relname;
            let data = pg_sys::palloc0(size_of::<pg_sys::ErrorData>()).cast::<pg_sys::ErrorData>();
            (*data).elevel = PgLogLevel::ERROR as i32;
            (*data).sqlerrcode = PgSqlErrorCode::ERRCODE_CHECK_VIOLATION as i32;
            let name = CStr::from_ptr(table.data.as_ptr());
            (*data).message = text(&[
                b"new row for relation \"",
                name.to_bytes(),
                b"\" violates check constraint \"",
                violation.constraint.to_bytes(),
                b"\"",
            ]);
            if let Some((label, column)) = violation.value
                && let Some(value) = self.get(column)
            {
                let shown = shown(bytes(&value));
                (*data).detail = text(&[b"The ", label.to_bytes(), b" is \"", &shown, b"\"."]);
            }
            (*data).hint = pg_sys::pstrdup(violation.hint.as_ptr());
            (*data).schema_name =
                pg_sys::get_namespace_name((*(*self.relation).rd_rel).relnamespace);
            (*data).table_name = pg_sys::pstrdup(name.as_ptr());
            (*data).constraint_name = pg_sys::pstrdup(violation.constraint.as_ptr());
            data
        };
        Answer {
            row: self.tuple,
            refusal,
        }
    }
}

/// The beginning of a value, its control characters replaced.
fn shown(value: &[u8]) -> Vec<u8> {
    let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
    // SAFETY: reads no more than that many bytes, and none behind the last whole character within the limit.
    let end = unsafe { pg_sys::pg_mbcliplen(value.as_ptr().cast(), length, SHOWN) };
    let end = usize::try_from(end).unwrap_or(0);
    let mut shown: Vec<u8> = value[..end]
        .iter()
        .map(|byte| if byte.is_ascii_control() { b'?' } else { *byte })
        .collect();
    if end < value.len() {
        shown.extend_from_slice(b"...");
    }
    shown
}

/// A string of the server's, of these parts.
fn text(parts: &[&[u8]]) -> *mut c_char {
    let whole = parts.concat();
    // SAFETY: the memory is as long as the string and its end.
    unsafe {
        let place = pg_sys::palloc0(whole.len() + 1);
        place
            .cast::<u8>()
            .copy_from_nonoverlapping(whole.as_ptr(), whole.len());
        place.cast()
    }
}
