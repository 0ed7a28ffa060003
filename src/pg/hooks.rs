//! Hooks for statements that need a database to themselves, or open or close it to connections, for the end of
//! prepared transactions, and for DROP and ALTER EXTENSION.
//!
//! This file reads the server's parse trees; [`crate::worker::utility`] decides what to do.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use pgrx::prelude::*;

use super::catalog;

/// The functions that the hooks call on events that concern the workers.
pub struct Handlers {
    /// Called before a permitted statement that fails while another process is connected to this database.
    pub before_exclusive: fn(pg_sys::Oid),
    /// Called after a statement that created this database or set its ALLOW_CONNECTIONS.
    pub after_changed: fn(pg_sys::Oid),
    /// Called after COMMIT PREPARED and ROLLBACK PREPARED, in their transaction.
    pub after_prepared: fn(),
    /// Called when this extension is dropped or altered in this database, while its catalog row still exists.
    pub on_extension_changed: fn(),
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

thread_local! {
    static NEXT_UTILITY: Cell<pg_sys::ProcessUtility_hook_type> = const { Cell::new(None) };
    static NEXT_ACCESS: Cell<pg_sys::object_access_hook_type> = const { Cell::new(None) };
}

/// Installs the hooks. Called from `_PG_init` while libraries are being preloaded, so that every session has them.
pub fn install(handlers: Handlers) {
    if HANDLERS.set(handlers).is_err() {
        return;
    }
    // SAFETY: plain variables of the postmaster, inherited by every process; the previous hooks are still called.
    unsafe {
        NEXT_UTILITY.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility);
        NEXT_ACCESS.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(object_access);
    }
}

/// The part of a statement that concerns the workers.
struct Concern {
    /// The database that must have no connections; `None` also if the current user may not run the statement.
    exclusive: Option<pg_sys::Oid>,
    /// The name of the database that is created, or whose ALLOW_CONNECTIONS is set.
    changed: Option<*const c_char>,
}

/// Returns the part of a statement that concerns the workers.
///
/// # Safety
/// `statement` is a parse tree of the server, or null.
unsafe fn concern(statement: *mut pg_sys::Node) -> Concern {
    let mut concern = Concern {
        exclusive: None,
        changed: None,
    };
    // SAFETY: the tag gives the type of the node; names in it are NUL-terminated or null.
    unsafe {
        let Some(node) = statement.as_ref() else {
            return concern;
        };
        let exclusive = match node.type_ {
            pg_sys::NodeTag::T_DropdbStmt => (*statement.cast::<pg_sys::DropdbStmt>()).dbname,
            pg_sys::NodeTag::T_RenameStmt => {
                let rename = &*statement.cast::<pg_sys::RenameStmt>();
                if rename.renameType != pg_sys::ObjectType::OBJECT_DATABASE {
                    return concern;
                }
                rename.subname
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = &*statement.cast::<pg_sys::AlterDatabaseStmt>();
                if option(alter.options, c"allow_connections").is_some() {
                    concern.changed = Some(alter.dbname);
                }
                if string_option(alter.options, c"tablespace").is_none() {
                    return concern;
                }
                alter.dbname
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let create = &*statement.cast::<pg_sys::CreatedbStmt>();
                concern.changed = Some(create.dbname);
                // No TEMPLATE, or TEMPLATE DEFAULT.
                string_option(create.options, c"template")
                    .unwrap_or(c"template1".as_ptr().cast_mut())
            }
            _ => return concern,
        };
        if !exclusive.is_null() {
            let database = pg_sys::get_database_oid(exclusive, true);
            // Checked first: asking for the owner of a missing database is an error, which the statement must raise.
            let may = database != pg_sys::InvalidOid
                && (catalog::owns_database(database)
                    || (concern.changed.is_some() && catalog::may_copy(database)));
            concern.exclusive = may.then_some(database);
        }
    }
    concern
}

/// Returns the option `name` of a statement, if it is given.
///
/// # Safety
/// `options` is a list of `DefElem`, or null.
unsafe fn option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: as the caller promises; the name of an option is NUL-terminated.
    unsafe {
        let length = options.as_ref()?.length;
        (0..length)
            .map(|at| {
                (*(*options).elements.add(at as usize))
                    .ptr_value
                    .cast::<pg_sys::DefElem>()
            })
            .find(|option| CStr::from_ptr((**option).defname) == name)
    }
}

/// Returns the value of the option `name` of a statement as text; `None` if it is not given or is DEFAULT.
///
/// # Safety
/// As for [`option`].
unsafe fn string_option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut c_char> {
    // SAFETY: as the caller promises.
    unsafe {
        option(options, name)
            .filter(|option| !(**option).arg.is_null())
            .map(|option| pg_sys::defGetString(option))
    }
}

// The server's own function, without the guard that pgrx wraps it in: see `process_utility`.
unsafe extern "C-unwind" {
    fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        text: *const c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        parameters: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        destination: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// Runs every utility statement of the server; few of them concern the workers. An error in a statement must reach its
/// session unchanged, so nothing is caught here: this frame owns nothing that would have to be dropped, the server may
/// jump over it, and the functions that call our handlers have their own guards.
#[allow(clippy::too_many_arguments, reason = "the server's signature")]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the server passes a planned statement around a parse tree, never null; its arguments are passed on.
    unsafe {
        // Read first: a ROLLBACK frees its own parse tree. That of CREATE or ALTER DATABASE still exists afterwards.
        let opens = matches!(
            (*(*statement).utilityStmt).type_,
            pg_sys::NodeTag::T_CreatedbStmt | pg_sys::NodeTag::T_AlterDatabaseStmt
        );
        let finishes = finishes_prepared((*statement).utilityStmt);
        before((*statement).utilityStmt);
        let next = NEXT_UTILITY.get().unwrap_or(standard_ProcessUtility);
        next(
            statement,
            text,
            read_only_tree,
            context,
            parameters,
            environment,
            destination,
            completion,
        );
        if opens {
            after((*statement).utilityStmt);
        }
        if finishes {
            after_prepared();
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn before(statement: *mut pg_sys::Node) {
    // SAFETY: as the caller promises.
    let exclusive = unsafe { concern(statement) }.exclusive;
    if let (Some(database), Some(handlers)) = (exclusive, HANDLERS.get()) {
        (handlers.before_exclusive)(database);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn after(statement: *mut pg_sys::Node) {
    // SAFETY: as the caller promises; the name is part of the statement's parse tree.
    let database = unsafe {
        concern(statement)
            .changed
            .map(|name| pg_sys::get_database_oid(name, true))
    };
    if let (Some(database), Some(handlers)) = (database, HANDLERS.get()) {
        (handlers.after_changed)(database);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn after_prepared() {
    if let Some(handlers) = HANDLERS.get() {
        (handlers.after_prepared)();
    }
}

/// Whether this is COMMIT PREPARED or ROLLBACK PREPARED.
///
/// # Safety
/// `statement` is a parse tree of the server.
unsafe fn finishes_prepared(statement: *const pg_sys::Node) -> bool {
    use pg_sys::TransactionStmtKind::{TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_ROLLBACK_PREPARED};
    // SAFETY: the tag gives the type of the node.
    unsafe {
        (*statement).type_ == pg_sys::NodeTag::T_TransactionStmt
            && matches!(
                (*statement.cast::<pg_sys::TransactionStmt>()).kind,
                TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED
            )
    }
}

/// Called for every object that is created, changed, dropped or used. Catches nothing, like [`process_utility`].
unsafe extern "C-unwind" fn object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub_object: c_int,
    argument: *mut c_void,
) {
    // SAFETY: the server's arguments are passed on unchanged.
    unsafe {
        if let Some(next) = NEXT_ACCESS.get() {
            next(access, class, object, sub_object, argument);
        }
        let changes = matches!(
            access,
            pg_sys::ObjectAccessType::OAT_DROP | pg_sys::ObjectAccessType::OAT_POST_ALTER
        );
        if changes && class == pg_sys::ExtensionRelationId {
            extension_changed(object);
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn extension_changed(extension: pg_sys::Oid) {
    if let Some(handlers) = HANDLERS.get()
        && catalog::extension() == Some(extension)
    {
        (handlers.on_extension_changed)();
    }
}
