//! Statements that a trigger in the library runs, prepared once in a session.
//!
//! What they set off in turn (foreign keys, triggers, constraints of somebody's own) may fail, and a client must
//! see that error whole. So they are run without pgrx's guard, by frames that own nothing.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// One statement of a trigger function, see `sql/queries`.
pub struct Statement {
    /// `@extschema@` stands for the schema of the function.
    text: &'static str,
    /// The plan, and the function it was made for: the extension may be dropped and come again elsewhere.
    plan: Cell<(pg_sys::Oid, pg_sys::SPIPlanPtr)>,
}

// The server's own, without the guard that pgrx wraps them in: see above.
unsafe extern "C-unwind" {
    fn SPI_connect() -> c_int;
    fn SPI_finish() -> c_int;
    fn SPI_register_trigger_data(data: *mut pg_sys::TriggerData) -> c_int;
    fn SPI_prepare_cursor(
        text: *const c_char,
        parameters: c_int,
        types: *mut pg_sys::Oid,
        options: c_int,
    ) -> pg_sys::SPIPlanPtr;
    fn SPI_keepplan(plan: pg_sys::SPIPlanPtr) -> c_int;
    fn SPI_freeplan(plan: pg_sys::SPIPlanPtr) -> c_int;
    fn SPI_execute_plan(
        plan: pg_sys::SPIPlanPtr,
        values: *mut pg_sys::Datum,
        nulls: *const c_char,
        read_only: bool,
        rows: std::ffi::c_long,
    ) -> c_int;
}

impl Statement {
    /// A statement without parameters.
    pub const fn new(text: &'static str) -> Self {
        Self {
            text,
            plan: Cell::new((pg_sys::InvalidOid, std::ptr::null_mut())),
        }
    }

    /// Runs it. Transition tables are at its disposal.
    ///
    /// # Safety
    /// `fcinfo` is that of a trigger's call. The caller's frame and those up to the server's own hold nothing
    /// that would have to be dropped.
    pub unsafe fn run(&self, fcinfo: pg_sys::FunctionCallInfo) {
        // SAFETY: by the caller's word; the plan has no parameters.
        unsafe {
            let mut code = SPI_connect();
            if code >= 0 {
                let data = (*fcinfo).context.cast::<pg_sys::TriggerData>();
                code = SPI_register_trigger_data(data);
            }
            if code >= 0 {
                let plan = self.prepared((*(*fcinfo).flinfo).fn_oid);
                code = SPI_execute_plan(plan, std::ptr::null_mut(), std::ptr::null(), false, 0);
            }
            if code >= 0 {
                code = SPI_finish();
            }
            if code < 0 {
                fail(code);
            }
        }
    }

    /// # Safety
    /// As of [`Self::run`]; connected to SPI.
    unsafe fn prepared(&self, function: pg_sys::Oid) -> pg_sys::SPIPlanPtr {
        let (made_for, plan) = self.plan.get();
        if made_for == function {
            return plan;
        }
        // SAFETY: by the caller's word.
        unsafe {
            if !plan.is_null() {
                self.plan.set((pg_sys::InvalidOid, std::ptr::null_mut()));
                SPI_freeplan(plan);
            }
            // One plan for all calls: there is nothing to choose from.
            let plan = SPI_prepare_cursor(
                write(self.text, function),
                0,
                std::ptr::null_mut(),
                pg_sys::CURSOR_OPT_GENERIC_PLAN as c_int,
            );
            if plan.is_null() {
                fail(pg_sys::SPI_result);
            }
            let code = SPI_keepplan(plan);
            if code < 0 {
                fail(code);
            }
            self.plan.set((function, plan));
            plan
        }
    }
}

/// The text of a statement with the schema of the function that runs it.
#[pg_guard]
#[allow(improper_ctypes_definitions, reason = "called from this file alone")]
extern "C-unwind" fn write(text: &'static str, function: pg_sys::Oid) -> *const c_char {
    // SAFETY: in a transaction; the server's strings are NUL-terminated, and ours is where it frees it.
    unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::get_func_namespace(function));
        let schema = CStr::from_ptr(pg_sys::quote_identifier(schema)).to_bytes();
        let mut parts = text.split("@extschema@").map(str::as_bytes);
        let mut whole = parts.next().unwrap_or_default().to_vec();
        for part in parts {
            whole.extend_from_slice(schema);
            whole.extend_from_slice(part);
        }
        let place = pg_sys::palloc0(whole.len() + 1).cast::<u8>();
        place.copy_from_nonoverlapping(whole.as_ptr(), whole.len());
        place.cast()
    }
}

#[pg_guard]
extern "C-unwind" fn fail(code: c_int) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        "a trigger could not run its statement",
        function_name!(),
    )
    .set_detail(format!("The server's code for it is {code}."))
    .report(PgLogLevel::ERROR);
}
