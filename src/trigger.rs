//! Triggers written in the library: what the server hands them, looked at before it is used.
//!
//! A table's CHECK constraints and its triggers' WHEN clauses are read from the catalog and compiled anew by
//! each statement, which for one row is most of the work. A trigger in C costs as much as what it does. What a
//! row trigger refuses a client is told as of a constraint: SQLSTATE 23514 with a constraint's name.
//!
//! Whoever owns a table can put any trigger function on it. So nothing is taken for granted here: how the
//! function was called, and that the rows have a column of this name and type, is looked at before a value is.
//!
//! pgrx's guard keeps message, detail and hint of an error that passes through it, and drops the rest. An error
//! that must reach its client whole is raised, or let through, by a frame without the guard that owns nothing.

use std::ffi::CStr;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::server;

mod row;
mod rows;
mod statement;

pub use row::{Answer, NewRow, Violation};
pub use rows::{Changes, NewRows};
pub use statement::Statement;

/// A column of the row, of a type that was looked at.
#[derive(Clone, Copy)]
pub struct Column {
    number: i32,
    of_type: pg_sys::Oid,
    collation: pg_sys::Oid,
}

/// How the server is to call a function of the library, for its `pg_finfo_` function to say.
pub const VERSION_1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

// As the server has it, to be called by the server.
unsafe extern "C-unwind" {
    fn lower(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
}

/// What type a column must have for the library to read it.
#[derive(Clone, Copy)]
pub enum Kind {
    Text,
    Bytea,
    BigInt,
    Integer,
    SmallInt,
    TimestampTz,
    Interval,
    Uuid,
    Jsonb,
    Name,
    /// An array of texts.
    Texts,
    /// Any enum; its labels are looked up.
    Enum,
}

impl Kind {
    /// Whether a value of this type is read like that.
    pub fn is(self, of_type: pg_sys::Oid) -> bool {
        match self {
            Self::Text => of_type == pg_sys::TEXTOID || of_type == pg_sys::VARCHAROID,
            Self::Bytea => of_type == pg_sys::BYTEAOID,
            Self::BigInt => of_type == pg_sys::INT8OID,
            Self::Integer => of_type == pg_sys::INT4OID,
            Self::SmallInt => of_type == pg_sys::INT2OID,
            Self::TimestampTz => of_type == pg_sys::TIMESTAMPTZOID,
            Self::Interval => of_type == pg_sys::INTERVALOID,
            Self::Uuid => of_type == pg_sys::UUIDOID,
            Self::Jsonb => of_type == pg_sys::JSONBOID,
            Self::Name => of_type == pg_sys::NAMEOID,
            Self::Texts => of_type == pg_sys::TEXTARRAYOID,
            // SAFETY: in a transaction, as every statement is.
            Self::Enum => unsafe { pg_sys::type_is_enum(of_type) },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bytea => "bytea",
            Self::BigInt => "bigint",
            Self::Integer => "integer",
            Self::SmallInt => "smallint",
            Self::TimestampTz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Uuid => "uuid",
            Self::Jsonb => "jsonb",
            Self::Name => "name",
            Self::Texts => "text[]",
            Self::Enum => "enum",
        }
    }
}

impl Column {
    /// Its number in the table, from 1.
    pub fn number(self) -> pg_sys::AttrNumber {
        self.number as pg_sys::AttrNumber
    }

    /// Its type.
    pub fn of_type(self) -> pg_sys::Oid {
        self.of_type
    }

    /// The column of this name, which must be of this type.
    ///
    /// # Errors
    /// 39P01 when the table has none: the trigger was put on another table.
    ///
    /// # Safety
    /// As of [`Self::find`].
    pub unsafe fn of(
        descriptor: pg_sys::TupleDesc,
        name: &CStr,
        kind: Kind,
        function: &'static str,
    ) -> Result<Self, ErrorReport> {
        // SAFETY: by the caller's word.
        unsafe { Self::find(descriptor, name, kind) }.map_err(|detail| misused(function, detail))
    }

    /// The column of this name and type.
    ///
    /// # Errors
    /// What is missing, for the DETAIL of an error.
    ///
    /// # Safety
    /// The descriptor is that of an open relation.
    pub unsafe fn find(
        descriptor: pg_sys::TupleDesc,
        name: &CStr,
        kind: Kind,
    ) -> Result<Self, String> {
        // SAFETY: the descriptor has `natts` columns, and a name is NUL-terminated.
        let found = unsafe {
            (0..usize::try_from((*descriptor).natts).unwrap_or(0)).find_map(|index| {
                let attribute = &*server::attribute(descriptor, index);
                let is_it = CStr::from_ptr(attribute.attname.data.as_ptr()) == name
                    && !attribute.attisdropped
                    && (kind.is(attribute.atttypid)
                        || kind.is(pg_sys::getBaseType(attribute.atttypid)));
                is_it.then(|| Self {
                    number: i32::from(attribute.attnum),
                    of_type: attribute.atttypid,
                    collation: attribute.attcollation,
                })
            })
        };
        found.ok_or_else(|| {
            let (name, kind) = (name.to_string_lossy(), kind.name());
            format!("The table has no column \"{name}\" of type {kind}.")
        })
    }

    /// The value in a row; `None` for null.
    ///
    /// # Safety
    /// The tuple is of the relation with this descriptor, which is open, and the column is one of it.
    pub unsafe fn value(
        self,
        tuple: pg_sys::HeapTuple,
        descriptor: pg_sys::TupleDesc,
    ) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: by the caller's word.
        let value =
            unsafe { pg_sys::htup::heap_getattr(tuple, self.number, descriptor, &mut is_null) };
        (!is_null).then_some(value)
    }

    /// The value of the column's enum that has this label.
    ///
    /// # Errors
    /// 39P01 when there is none.
    pub fn label(self, label: &CStr, function: &'static str) -> Result<pg_sys::Datum, ErrorReport> {
        server::enum_value(self.of_type, label).map_or_else(
            || {
                let label = label.to_string_lossy();
                Err(misused(function, format!("The enum has no \"{label}\".")))
            },
            |value| Ok(pg_sys::Datum::from(value)),
        )
    }

    /// The value in lower case, as SQL's lower() has it in the collation of the column.
    pub fn lower(self, value: pg_sys::Datum) -> pg_sys::Datum {
        let collation = if self.collation == pg_sys::InvalidOid {
            pg_sys::DEFAULT_COLLATION_OID
        } else {
            self.collation
        };
        // SAFETY: a text, as the column's type says.
        unsafe { pg_sys::DirectFunctionCall1Coll(Some(lower), collation, value) }
    }
}

/// The bytes of a text or bytea, for as long as the value is there or, where it had to be unpacked, the
/// memory of the statement.
///
/// # Safety
/// The value is of a type of variable length.
pub unsafe fn bytes(value: &pg_sys::Datum) -> &[u8] {
    // SAFETY: by the caller's word; the server says where the content of an unpacked value begins and ends.
    unsafe {
        let value = pg_sys::pg_detoast_datum_packed(value.cast_mut_ptr());
        std::slice::from_raw_parts(
            pgrx::vardata_any(value).cast(),
            pgrx::varsize_any_exhdr(value),
        )
    }
}

/// The characters in a text of the server's encoding.
pub fn characters(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
    // SAFETY: reads that many bytes, which the server has checked to be of its encoding.
    let characters = unsafe { pg_sys::pg_mbstrlen_with_len(text.as_ptr().cast(), length) };
    usize::try_from(characters).unwrap_or(usize::MAX)
}

/// Whether this label is that of an enum's value; false as well for what is no enum's value.
pub fn is_label(value: pg_sys::Datum, label: &CStr) -> bool {
    server::enum_label_is(pg_sys::Oid::from(value.value() as u32), label)
}

/// Has another trigger function of the same schema do the work for the same event, with the rights that it lends.
///
/// # Safety
/// `fcinfo` is that of a trigger's call. The caller's frame and those up to the server's own own nothing.
pub unsafe fn hand_on(fcinfo: pg_sys::FunctionCallInfo, function: &CStr) {
    // SAFETY: by the caller's word; zeroed memory is a call without arguments, and is filled in with what a trigger
    // function looks at.
    unsafe {
        let mut function = look_up(fcinfo, function.as_ptr());
        let mut call: pg_sys::FunctionCallInfoBaseData = std::mem::zeroed();
        call.flinfo = &raw mut function;
        call.context = (*fcinfo).context;
        if let Some(address) = function.fn_addr {
            address(&raw mut call);
        }
    }
}

/// A function without arguments in the schema of the one that is called.
#[pg_guard]
unsafe extern "C-unwind" fn look_up(
    fcinfo: pg_sys::FunctionCallInfo,
    name: *const std::ffi::c_char,
) -> pg_sys::FmgrInfo {
    // SAFETY: in a transaction; the keys are those of the cache; zeroed memory is for the server to fill in. A
    // missing function is its error.
    unsafe {
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let arguments = pg_sys::buildoidvector(std::ptr::null(), 0);
        let function = pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32,
            pg_sys::Anum_pg_proc_oid as pg_sys::AttrNumber,
            pg_sys::Datum::from(name),
            pg_sys::Datum::from(arguments),
            pg_sys::Datum::from(schema),
            pg_sys::Datum::null(),
        );
        let mut found: pg_sys::FmgrInfo = std::mem::zeroed();
        pg_sys::fmgr_info(function, &raw mut found);
        found
    }
}

/// What a trigger function was called with; `None` when it was not called as one.
///
/// # Safety
/// `fcinfo` is what the server called the function with, and the call lasts.
unsafe fn called_with<'call>(
    fcinfo: pg_sys::FunctionCallInfo,
) -> Option<&'call pg_sys::TriggerData> {
    // SAFETY: the node's tag says that it is the data of a trigger's call, whose parts the server has filled in for
    // the event that it names.
    unsafe {
        pgrx::trigger_support::called_as_trigger(fcinfo)
            .then(|| &*(*fcinfo).context.cast::<pg_sys::TriggerData>())
    }
}

fn misused(function: &'static str, detail: String) -> ErrorReport {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
        format!("{function} belongs to a trigger of mailroom's own"),
        function_name!(),
    )
    .set_detail(detail)
    .set_hint("Write a trigger function of your own for other tables.")
}
