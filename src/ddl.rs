//! Making way for statements that need a database to themselves, and noticing DROP and ALTER EXTENSION.
//!
//! DROP DATABASE, ALTER DATABASE … RENAME or SET TABLESPACE, and CREATE DATABASE … TEMPLATE fail while
//! another process is connected. The server itself waits five seconds for others to go, so it is enough to
//! tell our worker before it begins, and to let it back in afterwards. Only those who could succeed with the
//! statement can have a worker sent away: the owner of the database, and, where it is a template, those who
//! may copy it.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use pgrx::prelude::*;
use pgrx::{PgXactCallbackEvent, register_xact_callback};

use crate::{registry, server, wake};

thread_local! {
    static NEXT_UTILITY: Cell<pg_sys::ProcessUtility_hook_type> = const { Cell::new(None) };
    static NEXT_ACCESS: Cell<pg_sys::object_access_hook_type> = const { Cell::new(None) };
}

/// Hooks in. Called from `_PG_init` while libraries are being preloaded, so that every session has it.
pub fn hook() {
    // SAFETY: plain variables of the postmaster, inherited by every process; what was there is called on.
    unsafe {
        NEXT_UTILITY.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility);
        NEXT_ACCESS.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(object_access);
    }
}

/// The part of a statement that concerns us.
struct Makeway {
    /// The database that must be free of connections.
    emptied: Option<pg_sys::Oid>,
    /// The name of a database that comes into being, or takes connections again.
    welcomed: Option<*const c_char>,
}

/// What this statement needs of us.
///
/// # Safety
/// `statement` is a parse tree of the server's, or null.
unsafe fn needs(statement: *mut pg_sys::Node) -> Makeway {
    let mut needs = Makeway {
        emptied: None,
        welcomed: None,
    };
    // SAFETY: the tag says what the node is; names in it are NUL-terminated or null.
    unsafe {
        let Some(node) = statement.as_ref() else {
            return needs;
        };
        let emptied = match node.type_ {
            pg_sys::NodeTag::T_DropdbStmt => (*statement.cast::<pg_sys::DropdbStmt>()).dbname,
            pg_sys::NodeTag::T_RenameStmt => {
                let rename = &*statement.cast::<pg_sys::RenameStmt>();
                if rename.renameType != pg_sys::ObjectType::OBJECT_DATABASE {
                    return needs;
                }
                rename.subname
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = &*statement.cast::<pg_sys::AlterDatabaseStmt>();
                let opens = [c"allow_connections", c"is_template"];
                if opens
                    .iter()
                    .any(|name| option(alter.options, name).is_some())
                {
                    needs.welcomed = Some(alter.dbname);
                }
                if string_option(alter.options, c"tablespace").is_none() {
                    return needs;
                }
                alter.dbname
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let create = &*statement.cast::<pg_sys::CreatedbStmt>();
                needs.welcomed = Some(create.dbname);
                // Not given, or DEFAULT.
                string_option(create.options, c"template")
                    .unwrap_or(c"template1".as_ptr().cast_mut())
            }
            _ => return needs,
        };
        if !emptied.is_null() {
            let database = pg_sys::get_database_oid(emptied, true);
            let may = server::owns_database(database)
                || (needs.welcomed.is_some() && server::may_copy(database));
            needs.emptied = (database != pg_sys::InvalidOid && may).then_some(database);
        }
    }
    needs
}

/// An option of a statement, if it is there.
///
/// # Safety
/// `options` is a list of `DefElem`, or null.
unsafe fn option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: by the caller's word; a name is NUL-terminated.
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

/// The text of an option of a statement, if it is given, and not as DEFAULT.
///
/// # Safety
/// As of [`option`].
unsafe fn string_option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut c_char> {
    // SAFETY: by the caller's word.
    unsafe {
        option(options, name)
            .filter(|option| !(**option).arg.is_null())
            .map(|option| pg_sys::defGetString(option))
    }
}

// The server's own, without the guard that pgrx wraps it in: see below.
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

/// Every utility statement of the server passes through here, and most of them concern us not at all. An
/// error in one must go on to its session exactly as it is. So nothing is caught here: the frame owns nothing
/// that would have to be dropped, the server may jump over it, and our own parts are guarded by themselves.
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
    // SAFETY: the server passes a planned statement around a parse tree, never null; what it handed us is
    // handed on.
    unsafe {
        // Asked now: a ROLLBACK frees its own parse tree. One that makes a database is still there afterwards.
        let welcomes = matches!(
            (*(*statement).utilityStmt).type_,
            pg_sys::NodeTag::T_CreatedbStmt | pg_sys::NodeTag::T_AlterDatabaseStmt
        );
        let finishes = finishes_prepared((*statement).utilityStmt);
        make_way((*statement).utilityStmt);
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
        if welcomes {
            welcome((*statement).utilityStmt);
        }
        if finishes {
            prepared_finished();
        }
    }
}

/// Before a statement: sends the worker away from a database that must be free of connections. It may come
/// back when the transaction ends, which for these statements is when they end, well or badly.
#[pg_guard]
unsafe extern "C-unwind" fn make_way(statement: *mut pg_sys::Node) {
    // SAFETY: by the caller's word.
    let Some(database) = (unsafe { needs(statement) }).emptied else {
        return;
    };
    if let Some(index) = registry::bar(database) {
        for end in [PgXactCallbackEvent::Commit, PgXactCallbackEvent::Abort] {
            register_xact_callback(end, move || registry::unbar(database));
        }
        registry::send_away(index);
    }
}

/// After a statement: a database that came into being may have been copied from one with the extension, and one that
/// takes connections again may have it.
#[pg_guard]
unsafe extern "C-unwind" fn welcome(statement: *mut pg_sys::Node) {
    // SAFETY: by the caller's word; the name is part of the statement's parse tree.
    unsafe {
        if let Some(name) = needs(statement).welcomed {
            registry::request_at_commit(pg_sys::get_database_oid(name, true));
        }
    }
}

/// Whether this is COMMIT PREPARED or ROLLBACK PREPARED.
///
/// # Safety
/// `statement` is a parse tree of the server's.
unsafe fn finishes_prepared(statement: *const pg_sys::Node) -> bool {
    use pg_sys::TransactionStmtKind::{TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_ROLLBACK_PREPARED};
    // SAFETY: the tag says what the node is.
    unsafe {
        (*statement).type_ == pg_sys::NodeTag::T_TransactionStmt
            && matches!(
                (*statement.cast::<pg_sys::TransactionStmt>()).kind,
                TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED
            )
    }
}

/// After the end of a prepared transaction: it may have queued tokens, given some back, or made or dropped
/// the extension, and whoever prepared it could not know.
#[pg_guard]
unsafe extern "C-unwind" fn prepared_finished() {
    // SAFETY: in the transaction of the statement; the name is NUL-terminated; `true` makes a missing
    // extension InvalidOid.
    let exists =
        unsafe { pg_sys::get_extension_oid(c"mailroom".as_ptr(), true) } != pg_sys::InvalidOid;
    if exists && !wake::has_worker() {
        // SAFETY: a plain variable of this process.
        registry::request_at_commit(unsafe { pg_sys::MyDatabaseId });
    }
    wake::recheck_at_commit();
}

/// Called for every object that is made, changed, dropped or used: as above, nothing is caught here.
unsafe extern "C-unwind" fn object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub_object: c_int,
    argument: *mut c_void,
) {
    // SAFETY: what the server handed us, handed on.
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

/// Has the worker find out at once, if the transaction commits, that the extension is gone or was updated.
#[pg_guard]
unsafe extern "C-unwind" fn extension_changed(extension: pg_sys::Oid) {
    // SAFETY: in a transaction; the extension's row is still there.
    let ours = unsafe { pg_sys::get_extension_oid(c"mailroom".as_ptr(), true) };
    if ours == extension {
        wake::recheck_at_commit();
    }
}
