//! The server's settings: defining a setting with a check of its values, and reading and setting existing ones.

use std::ffi::{CStr, CString, c_char, c_void};

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::prelude::*;

/// Why a setting may not have a value, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objection {
    pub detail: &'static CStr,
    pub hint: &'static CStr,
}

/// A check of the values of a setting.
pub trait Check {
    /// What speaks against this value. Must not allocate, raise an error or panic: the server calls it where none of
    /// these can be handled.
    fn objection(value: &CStr) -> Option<Objection>;
}

/// Defines a setting of type string whose values are checked.
pub fn define_checked<C: Check>(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<Option<CString>>,
) {
    // SAFETY: the hook does not allocate, does not panic and does not change `newval`.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            name,
            short,
            long,
            setting,
            GucContext::Suset,
            GucFlags::empty(),
            Some(check::<C>),
            None,
            None,
        );
    }
}

unsafe extern "C-unwind" fn check<C: Check>(
    newval: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: the server passes a pointer to the value, which is NUL-terminated or null.
    let value = unsafe {
        newval
            .as_ref()
            .filter(|value| !value.is_null())
            .map(|value| CStr::from_ptr(*value))
    };
    // The server calls this without a guard: no panic may leave it.
    match std::panic::catch_unwind(|| C::objection(value.unwrap_or_default())) {
        Ok(None) => true,
        Ok(Some(objection)) => {
            // SAFETY: plain variables of this process, on its main thread. The server copies the texts when it reports them,
            // and neither changes nor frees them.
            unsafe {
                pg_sys::GUC_check_errdetail_string = objection.detail.as_ptr().cast_mut();
                pg_sys::GUC_check_errhint_string = objection.hint.as_ptr().cast_mut();
            }
            false
        }
        Err(_) => false,
    }
}

/// Reserves this prefix: the server removes unknown settings that have it, with a WARNING, and refuses new ones.
pub fn reserve_prefix(prefix: &'static CStr) {
    // SAFETY: the argument is NUL-terminated and lives as long as the process.
    unsafe { pg_sys::MarkGUCPrefixReserved(prefix.as_ptr()) };
}

/// Reads the configuration files again. Outside a transaction.
pub fn reload() {
    // SAFETY: outside a transaction, on the main thread.
    unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
}

/// Sets an option of this process, as SET does in a session of an ordinary user.
pub fn set(name: &CStr, value: &CStr) {
    let source = pg_sys::GucSource::PGC_S_SESSION;
    set_from(pg_sys::GucContext::PGC_USERSET, source, name, value);
}

/// Sets an option of this process as ALTER DATABASE … SET and ALTER ROLE … SET do at the start of a session.
pub fn set_for_database(name: &CStr, value: &CStr) {
    let source = pg_sys::GucSource::PGC_S_DATABASE_USER;
    set_from(pg_sys::GucContext::PGC_SUSET, source, name, value);
}

fn set_from(
    context: pg_sys::GucContext::Type,
    source: pg_sys::GucSource::Type,
    name: &CStr,
    value: &CStr,
) {
    // SAFETY: main thread; both strings are NUL-terminated and copied by the callee.
    unsafe { pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), context, source) };
}

/// Sets an option to the value that RESET would give it in this session, until the transaction ends.
pub fn reset_until_commit(name: &'static CStr) {
    // SAFETY: in a transaction; the setting ends with it; the default is the server's own string, or null.
    unsafe {
        let default = pg_sys::GetConfigOptionResetString(name.as_ptr());
        set_local(name, default, pg_sys::GucContext::PGC_USERSET);
    }
}

/// Sets an option of this process until the transaction ends. Does nothing if `value` contains a NUL.
pub fn set_until_commit(name: &'static CStr, value: &str) {
    let Ok(value) = CString::new(value) else {
        return;
    };
    // SAFETY: in a transaction; the setting ends with it.
    unsafe { set_local(name, value.as_ptr(), pg_sys::GucContext::PGC_USERSET) };
}

/// Disables triggers and foreign keys until the transaction ends.
pub fn disable_triggers_until_commit() {
    let name = c"session_replication_role";
    // SAFETY: in a transaction; the setting ends with it.
    unsafe { set_local(name, c"replica".as_ptr(), pg_sys::GucContext::PGC_SUSET) };
}

/// # Safety
/// In a transaction; `value` is NUL-terminated or null.
unsafe fn set_local(name: &CStr, value: *const c_char, context: pg_sys::GucContext::Type) {
    // SAFETY: as the caller promises; both strings are copied by the callee.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value,
            context,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_LOCAL,
            true,
            0,
            false,
        );
    }
}

/// Whether row_security is off in this session, as in sessions that restore a dump.
pub fn is_row_security_off() -> bool {
    // SAFETY: a plain variable of this process.
    !unsafe { pg_sys::row_security }
}

/// Whether this session has the other settings that pg_dump writes at the top of a script.
pub fn has_settings_of_a_dump() -> bool {
    // SAFETY: plain variables of this process.
    unsafe {
        !pg_sys::check_function_bodies && pg_sys::client_min_messages == pg_sys::WARNING as i32
    }
}

/// Whether CREATE EXTENSION or ALTER EXTENSION … UPDATE runs in this session.
pub fn is_creating_extension() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::creating_extension }
}
