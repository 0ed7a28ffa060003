//! Statements of other sessions that stop and start workers.
//!
//! DROP DATABASE, ALTER DATABASE … RENAME or SET TABLESPACE, and CREATE DATABASE … TEMPLATE fail while another process
//! is connected to the database. The server itself waits 5 s for other processes to disconnect, so it suffices to stop
//! the worker before such a statement and to start it again afterwards. Only a user who may run the statement can stop
//! a worker: the owner of the database or, if it is a template, a role that may copy it.
//!
//! After ALTER DATABASE … ALLOW_CONNECTIONS, the launcher starts a worker, or ends the one that is there.

use pgrx::prelude::*;
use pgrx::{PgXactCallbackEvent, register_xact_callback};

use crate::pg::hooks::{self, Handlers};
use crate::pg::{catalog, process};
use crate::shared_memory::{announce, registry};

/// Installs the hooks. Called from `_PG_init` while libraries are being preloaded.
pub fn install_hooks() {
    hooks::install(Handlers {
        before_exclusive: block_worker,
        after_changed: registry::request_at_commit,
        after_prepared: search_after_prepared,
        on_extension_changed: announce::recheck_at_commit,
    });
}

/// Stops the worker of a database until the transaction ends, which for most of these statements is the end of the
/// statement, successful or not.
fn block_worker(database: pg_sys::Oid) {
    if let Some(index) = registry::block_workers(database) {
        // If a transaction that renamed the database is prepared, the server itself keeps the worker out until it ends.
        for end in [
            PgXactCallbackEvent::Commit,
            PgXactCallbackEvent::Abort,
            PgXactCallbackEvent::Prepare,
        ] {
            register_xact_callback(end, move || registry::unblock_workers(database));
        }
        registry::terminate_worker(index);
    }
}

/// Makes the worker search: the prepared transaction may have enqueued tokens or mail, put some back, or created or
/// dropped the extension, and the session that prepared it could not know when it would end. Most have nothing to do
/// with mail, so what the worker learned from providers stays in force.
fn search_after_prepared() {
    if catalog::extension().is_some() && !announce::has_worker() {
        registry::request_at_commit(process::database());
    }
    announce::search_at_commit();
}
