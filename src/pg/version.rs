//! The differences between the supported server versions, and nothing else.

use std::ffi::CStr;

use pgrx::pg_sys;

/// The index of this process in the server's array of processes. Unlike a pointer, it means the same in every process.
/// A stale index can at worst wake another process.
pub fn own_proc_number() -> i32 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: MyProc is set in every process that runs this library's workers, and lives as long as the process.
    unsafe {
        (*pg_sys::MyProc).pgprocno
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: a plain variable of this process.
    unsafe {
        pg_sys::MyProcNumber
    }
}

/// The wait event of this library's processes in pg_stat_activity: `MailroomIdle` where extensions can name one.
pub fn wait_event() -> u32 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        pg_sys::PG_WAIT_EXTENSION
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    {
        use std::sync::OnceLock;
        static EVENT: OnceLock<u32> = OnceLock::new();
        // SAFETY: the name is NUL-terminated and copied; the same name gives the same event everywhere.
        *EVENT.get_or_init(|| unsafe { pg_sys::WaitEventExtensionNew(c"MailroomIdle".as_ptr()) })
    }
}

/// Whether `role` owns `object` of the catalog `class`: databases and extensions only. A superuser owns all objects.
pub fn owns(class: pg_sys::Oid, object: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: in a transaction; reads the catalog.
    unsafe {
        #[cfg(feature = "pg15")]
        {
            if class == pg_sys::DatabaseRelationId {
                pg_sys::pg_database_ownercheck(object, role)
            } else {
                pg_sys::pg_extension_ownercheck(object, role)
            }
        }
        #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
        {
            pg_sys::object_ownercheck(class, object, role)
        }
    }
}

/// Installs a signal handler.
///
/// # Safety
/// `handler` does only what signal handlers may.
pub unsafe fn set_signal_handler(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    // SAFETY: as the caller promises.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        pg_sys::pqsignal(signal as i32, Some(handler));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal as i32, Some(handler));
    }
}

/// Settings of this server version that can end a worker's process, each with the value that prevents it.
pub const SETTINGS_THAT_END_PROCESSES: &[(&CStr, &CStr)] = {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        &[]
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    {
        &[(c"transaction_timeout", c"0")]
    }
};
