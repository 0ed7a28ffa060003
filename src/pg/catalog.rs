//! Reads system catalogs without a query.

use std::ffi::{CStr, c_char};

use pgrx::prelude::*;

use super::version;

/// The extension's name.
const EXTENSION: &CStr = c"mailroom";

/// The extension's oid in this database.
pub fn extension() -> Option<pg_sys::Oid> {
    // SAFETY: in a transaction; the name is NUL-terminated; `true` makes a missing extension InvalidOid.
    let extension = unsafe { pg_sys::get_extension_oid(EXTENSION.as_ptr(), true) };
    (extension != pg_sys::InvalidOid).then_some(extension)
}

/// Keeps this extension from being dropped until the transaction ends. Waits for a transaction that drops it.
pub fn keep_extension(extension: pg_sys::Oid) {
    // SAFETY: in a transaction; the lock is released at its end.
    unsafe {
        pg_sys::LockDatabaseObject(
            pg_sys::ExtensionRelationId,
            extension,
            0,
            pg_sys::AccessShareLock as pg_sys::LOCKMODE,
        );
    }
}

/// Whether `role` owns the extension. A superuser owns every extension.
pub fn owns_extension(role: pg_sys::Oid) -> bool {
    extension().is_some_and(|extension| version::owns(pg_sys::ExtensionRelationId, extension, role))
}

/// Whether the current user is a superuser.
pub fn is_superuser() -> bool {
    // SAFETY: in a transaction; reads the catalog.
    unsafe { pg_sys::superuser() }
}

/// The roles that this session may act as: the session user, and the role that SET ROLE chose (`pg_restore --role`).
/// Not the current user, which within most triggers is the owner of the functions.
pub fn session_roles() -> [pg_sys::Oid; 2] {
    // SAFETY: reads variables of this process.
    unsafe { [pg_sys::GetSessionUserId(), pg_sys::GetOuterUserId()] }
}

/// Whether the current user owns this database. A superuser owns every database.
pub fn owns_database(database: pg_sys::Oid) -> bool {
    // SAFETY: reads a variable of this process.
    let user = unsafe { pg_sys::GetUserId() };
    version::owns(pg_sys::DatabaseRelationId, database, user)
}

/// Whether the current user may copy this database without owning it: it is a template and the role has CREATEDB.
pub fn may_copy(database: pg_sys::Oid) -> bool {
    // SAFETY: in a transaction. Each row is read while the cache holds it, and only its fixed part.
    unsafe {
        let is_template = with_row(pg_sys::SysCacheIdentifier::DATABASEOID, database, |row| {
            (*row.cast::<pg_sys::FormData_pg_database>()).datistemplate
        });
        is_template
            && with_row(
                pg_sys::SysCacheIdentifier::AUTHOID,
                pg_sys::GetUserId(),
                |row| (*row.cast::<pg_sys::FormData_pg_authid>()).rolcreatedb,
            )
    }
}

/// Returns the result of `read` for the row with this oid; false if there is none.
///
/// # Safety
/// In a transaction; `cache` is one by oid; `read` reads only the fixed part of its rows.
unsafe fn with_row(
    cache: pg_sys::SysCacheIdentifier::Type,
    oid: pg_sys::Oid,
    read: impl FnOnce(*mut c_char) -> bool,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache as i32, pg_sys::Datum::from(oid));
        if tuple.is_null() {
            return false;
        }
        let answer = read(pg_sys::GETSTRUCT(tuple).cast());
        pg_sys::ReleaseSysCache(tuple);
        answer
    }
}

/// A row of pg_database.
pub struct Database {
    pub oid: pg_sys::Oid,
    /// The bytes of its name, as UTF-8 as far as they are.
    pub name: String,
    /// Whether it accepts connections. One whose DROP was interrupted does not.
    pub is_open: bool,
}

/// Returns all databases. Outside a transaction.
pub fn databases() -> Vec<Database> {
    let mut found = Vec::new();
    // SAFETY: main thread of a worker that may read shared catalogs. One transaction around a plain scan of
    // pg_database; the tuples are read while the scan holds them, and only their fixed fields.
    unsafe {
        pg_sys::StartTransactionCommand();
        let relation =
            pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            // -1: no limit on connections; -2: its DROP was interrupted (DATCONNLIMIT_INVALID_DB).
            found.push(Database {
                oid: row.oid,
                name: CStr::from_ptr(row.datname.data.as_ptr())
                    .to_string_lossy()
                    .into_owned(),
                is_open: row.datallowconn && row.datconnlimit >= -1,
            });
        }
        // table_endscan is an inline function in C; this is its body.
        if let Some(end) = (*(*(*scan).rs_rd).rd_tableam).scan_end {
            end(scan);
        }
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        pg_sys::CommitTransactionCommand();
    }
    found
}

/// Returns the SQLSTATE of an error code, five characters.
pub fn sqlstate(code: pgrx::PgSqlErrorCode) -> String {
    // SAFETY: returns a static, NUL-terminated buffer of this process, which is copied before the next call.
    unsafe { CStr::from_ptr(pg_sys::unpack_sql_state(code as i32)) }
        .to_string_lossy()
        .into_owned()
}
