//! Which databases have a worker, want one, or turned out not to: the launcher's table in shared memory.
//!
//! A slot holds numbers, never addresses: a process id, a database id. The launcher frees slots; a worker
//! fills in its own; a session that creates the extension asks for one. All of it is rare, so a lock guards
//! it; what every commit touches is in `wake.rs`. Shared memory exists only when the library was preloaded.

use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, PgXactCallbackEvent, pg_shmem_init, register_xact_callback};

use crate::{server, settings};

/// Databases that can have a worker at the same time.
pub const SLOTS: usize = 64;

/// A database as seen by the launcher and the workers.
#[derive(Clone, Copy, Default)]
pub struct Slot {
    /// `pg_database.oid`; 0 for a free slot.
    pub database: u32,
    /// Process id of the worker that serves it; 0 while there is none.
    pub worker: i32,
    /// A session created the extension here and committed since the last start of a worker.
    pub requested: bool,
    /// The last worker looked and found no extension.
    pub absent: bool,
    /// Process id of a session whose statement needs the database to itself; 0 for none.
    pub barred_by: i32,
}

/// Everything in shared memory.
#[derive(Clone, Copy)]
pub struct Registry {
    /// Index of the launcher in the server's process array, for its latch; -1 while there is none.
    launcher: i32,
    slots: [Slot; SLOTS],
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            launcher: -1,
            slots: [Slot::default(); SLOTS],
        }
    }
}

// SAFETY: plain numbers, no addresses, valid in every process; all access is under the lock.
unsafe impl PGRXSharedMemory for Registry {}

// SAFETY: the name is this extension's own.
static REGISTRY: PgLwLock<Registry> = unsafe { PgLwLock::new(c"mailroom") };

/// Reserves the shared memory. Called from `_PG_init` while libraries are being preloaded.
pub fn reserve() {
    pg_shmem_init!(REGISTRY);
}

/// The index of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotIndex(usize);

impl SlotIndex {
    /// The number itself.
    pub fn get(self) -> usize {
        self.0
    }

    /// For a worker's start argument.
    pub fn to_datum(self) -> Option<pg_sys::Datum> {
        Some(pg_sys::Datum::from(self.0))
    }

    /// From a worker's start argument.
    pub fn from_datum(datum: pg_sys::Datum) -> Self {
        Self(datum.value().min(SLOTS - 1))
    }
}

/// Makes this process the one whose latch [`request_at_commit`] and [`leave`] set.
pub fn register_launcher() {
    REGISTRY.exclusive().launcher = server::own_proc_number();
}

/// All slots in use.
pub fn slots() -> Vec<(SlotIndex, Slot)> {
    let registry = REGISTRY.share();
    registry
        .slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| slot.database != 0)
        .map(|(i, slot)| (SlotIndex(i), *slot))
        .collect()
}

/// The slot of `database`, made if there is none; `None` when all are taken.
pub fn slot_for(database: pg_sys::Oid) -> Option<SlotIndex> {
    find_or_make(&mut REGISTRY.exclusive(), database.to_u32())
}

fn find_or_make(registry: &mut Registry, database: u32) -> Option<SlotIndex> {
    let slots = &mut registry.slots[..settings::max_databases()];
    let index = slots
        .iter()
        .position(|slot| slot.database == database)
        .or_else(|| slots.iter().position(|slot| slot.database == 0))?;
    if slots[index].database == 0 {
        slots[index] = Slot {
            database,
            ..Slot::default()
        };
    }
    Some(SlotIndex(index))
}

/// One slot as it is now.
pub fn slot(index: SlotIndex) -> Slot {
    REGISTRY.share().slots[index.0]
}

/// The launcher is about to start a worker here: what was asked for until now is answered by it.
pub fn starting(index: SlotIndex) {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    slot.requested = false;
    slot.absent = false;
}

/// Forgets a database that has no extension, unless one was created meanwhile.
pub fn free_if_absent(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    let free = slot.absent && !slot.requested && slot.worker == 0;
    if free {
        *slot = Slot::default();
    }
    free
}

/// Keeps workers out of a database while this session's statement needs it to itself; tells the one that is
/// there to go. Returns whether there is anything to [`unbar`].
pub fn bar(database: pg_sys::Oid) -> bool {
    if !crate::is_preloaded() {
        return false;
    }
    let worker = {
        let mut registry = REGISTRY.exclusive();
        let wanted = database.to_u32();
        let Some(slot) = registry
            .slots
            .iter_mut()
            .find(|slot| slot.database == wanted)
        else {
            return false;
        };
        // SAFETY: a plain variable of this process.
        slot.barred_by = unsafe { pg_sys::MyProcPid };
        slot.worker
    };
    server::terminate(worker);
    true
}

/// Ends what [`bar`] began: a worker comes back if the database is still there.
pub fn unbar(database: pg_sys::Oid) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        let wanted = database.to_u32();
        if let Some(slot) = registry
            .slots
            .iter_mut()
            .find(|slot| slot.database == wanted)
        {
            slot.barred_by = 0;
            slot.requested = true;
        }
        registry.launcher
    };
    server::wake(launcher);
}

/// Whether a live session keeps workers out of this slot's database.
pub fn is_barred(slot: &Slot) -> bool {
    // SAFETY: looks the number up in the server's array of processes; no process of ours is touched.
    slot.barred_by != 0 && unsafe { !pg_sys::BackendPidGetProc(slot.barred_by).is_null() }
}

/// Forgets a database that was dropped.
pub fn forget(index: SlotIndex) {
    REGISTRY.exclusive().slots[index.0] = Slot::default();
}

/// This worker serves the slot's database from now on, until [`leave`]; false when a session keeps workers
/// out of it just now, and this one must go.
#[must_use]
pub fn enter(index: SlotIndex) -> bool {
    let (entered, launcher) = {
        let mut registry = REGISTRY.exclusive();
        let entered = !is_barred(&registry.slots[index.0]);
        if entered {
            // SAFETY: a plain variable of this process.
            registry.slots[index.0].worker = unsafe { pg_sys::MyProcPid };
        }
        (entered, registry.launcher)
    };
    // It waits for this before it starts the next worker.
    server::wake(launcher);
    entered
}

/// This worker looked and there is no extension.
pub fn report_absent(index: SlotIndex) {
    REGISTRY.exclusive().slots[index.0].absent = true;
}

/// This worker is gone; the launcher decides what follows.
pub fn leave(index: SlotIndex) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        registry.slots[index.0].worker = 0;
        registry.launcher
    };
    server::wake(launcher);
}

/// Asks for a worker in this database once this transaction commits.
#[pg_extern(sql = false)]
fn _request_worker() {
    if !crate::is_preloaded() {
        ereport!(
            // Not a NOTICE: CREATE EXTENSION keeps those to itself.
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_WARNING,
            "mailroom is not in shared_preload_libraries, so no worker will collect the mail",
            "Tokens wait in pending until somebody calls mailroom_collect() or mailroom_dequeue()."
        );
        return;
    }
    // SAFETY: a plain variable of this process, set since it connected.
    request_at_commit(unsafe { pg_sys::MyDatabaseId });
}

/// Asks for a worker in `database` once this transaction commits.
///
/// After the commit nothing may fail, hence no error when all slots are taken: the launcher looks at every
/// database again when it starts.
pub fn request_at_commit(database: pg_sys::Oid) {
    register_xact_callback(PgXactCallbackEvent::Commit, move || request(database));
}

/// Asks for a worker in `database` now.
pub fn request(database: pg_sys::Oid) {
    if !crate::is_preloaded() {
        return;
    }
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        if let Some(SlotIndex(index)) = find_or_make(&mut registry, database.to_u32()) {
            registry.slots[index].requested = true;
        }
        registry.launcher
    };
    server::wake(launcher);
}
