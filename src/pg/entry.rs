//! The entry points of the background workers, which the server finds by name.

use std::sync::OnceLock;

use pgrx::prelude::*;

/// The functions that the entry points call.
pub struct Mains {
    /// Main function of the launcher.
    pub launcher: fn(),
    /// Main function of a worker; its argument is the start argument of the process.
    pub worker: fn(pg_sys::Datum),
}

static MAINS: OnceLock<Mains> = OnceLock::new();

/// Sets the main functions. Called from `_PG_init` while libraries are being preloaded, so that every process has them.
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
