//! What statements of other sessions ask of the workers.
//!
//! DROP DATABASE, ALTER DATABASE … RENAME or SET TABLESPACE, and CREATE DATABASE … TEMPLATE fail while
//! another process is connected. The server itself waits five seconds for others to disconnect, so it is enough to
//! stop our worker before such a statement begins, and to start it again afterwards. Only a user who could succeed with
//! the statement can have a worker stopped: the owner of the database, and, where it is a template, a role that may
//! copy it.

use pgrx::prelude::*;
use pgrx::{PgXactCallbackEvent, register_xact_callback};

use crate::pg::hooks::{self, Handlers};
use crate::pg::{catalog, process};
use crate::shared_memory::{announce, registry};

/// Installs the hooks. Called from `_PG_init` while libraries are being preloaded.
pub fn install_hooks() {
    hooks::install(Handlers {
        before_exclusive: block_worker,
        after_opened: registry::request_at_commit,
        after_prepared: recheck_after_prepared,
        on_extension_changed: announce::recheck_at_commit,
    });
}

/// Stops the worker of a database. It may come back when the transaction ends, which for most of these statements is when
/// they end, well or badly.
fn block_worker(database: pg_sys::Oid) {
    if let Some(index) = registry::block_workers(database) {
        // Where a transaction that renamed it is prepared, the server keeps the worker out until it is finished.
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

/// The prepared transaction may have queued tokens, given some back, or created or dropped the extension, and its own
/// session could not know when it would be committed.
fn recheck_after_prepared() {
    if catalog::extension().is_some() && !announce::has_worker() {
        registry::request_at_commit(process::database());
    }
    announce::recheck_at_commit();
}
