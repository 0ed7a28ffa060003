//! The functions by whose names the postmaster starts background workers.

use std::sync::OnceLock;

use pgrx::prelude::*;

/// What these functions do.
pub struct Mains {
    /// Of the launcher.
    pub launcher: fn(),
    /// Of a worker, with the argument that it was started with.
    pub worker: fn(pg_sys::Datum),
}

static MAINS: OnceLock<Mains> = OnceLock::new();

/// Says what they do. Called from `_PG_init` while libraries are being preloaded, so that every process knows.
pub fn set(mains: Mains) {
    let _ = MAINS.set(mains);
}

/// Entry point of the launcher.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn mailroom_launcher_main(_argument: pg_sys::Datum) {
    if let Some(mains) = MAINS.get() {
        (mains.launcher)();
    }
}

/// Entry point of a worker.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn mailroom_worker_main(argument: pg_sys::Datum) {
    if let Some(mains) = MAINS.get() {
        (mains.worker)(argument);
    }
}
