//! Which databases have a worker, want one, or turned out not to: the launcher's table in shared memory.
//!
//! A slot holds numbers, never addresses: a process id, a database id. The launcher frees slots; a worker
//! fills in its own; a session that creates the extension asks for one. All of it is rare, so a lock guards
//! it; what every commit touches is in `wake.rs`. Shared memory exists only when the library was preloaded.

use std::time::{Duration, Instant};

use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, PgXactCallbackEvent, pg_shmem_init, register_xact_callback};

use crate::{server, settings};

/// Databases that can have a worker at the same time.
pub const SLOTS: usize = 64;
/// How long a session waits for a worker that is just connecting. The server itself waits five seconds for
/// other sessions to go.
const CONNECTING: Duration = Duration::from_secs(5);

/// How far a worker has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// It is connecting to the database, deaf to everything.
    #[default]
    Connecting,
    /// It can be told to go, and looks for the extension.
    Looking,
    /// It found it: the launcher need not wait for it any longer.
    Serving,
}

/// A database as seen by the launcher and the workers.
#[derive(Clone, Copy, Default)]
pub struct Slot {
    /// `pg_database.oid`; 0 for a free slot.
    pub database: u32,
    /// Process id of the worker that serves it, or is about to; 0 while there is none.
    pub worker: i32,
    /// That worker's index in the server's process array, for its latch.
    latch: i32,
    /// How far it has come.
    pub stage: Stage,
    /// A session created the extension here and committed since the last start of a worker.
    pub requested: bool,
    /// The last worker looked and found no extension.
    pub absent: bool,
    /// Process id of a session whose statement needs the database to itself; 0 for none.
    pub barred_by: i32,
    /// Changes whenever a worker that is still on its way is to turn back.
    generation: u16,
}

impl Slot {
    /// A slot for another database, or for none. Whoever was on the way to the old one will notice.
    fn reset(&mut self, database: u32) {
        *self = Self {
            database,
            generation: self.generation.wrapping_add(1),
            ..Self::default()
        };
    }
}

/// Everything in shared memory.
#[derive(Clone, Copy)]
pub struct Registry {
    /// Index of the launcher in the server's process array, for its latch; -1 while there is none.
    launcher: i32,
    /// A database went without a slot because all were taken.
    crowded: bool,
    slots: [Slot; SLOTS],
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            launcher: -1,
            crowded: false,
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
}

/// What a worker is sent off with: a slot, as it was at that moment.
#[derive(Clone, Copy)]
pub struct Ticket {
    index: SlotIndex,
    generation: u16,
}

impl Ticket {
    /// The slot it is for.
    pub fn index(self) -> SlotIndex {
        self.index
    }

    /// For a worker's start argument.
    pub fn to_datum(self) -> pg_sys::Datum {
        pg_sys::Datum::from(self.index.0 << 16 | usize::from(self.generation))
    }

    /// From a worker's start argument.
    pub fn from_datum(datum: pg_sys::Datum) -> Self {
        let [low, high, ..] = datum.value().to_le_bytes();
        Self {
            index: SlotIndex((datum.value() >> 16).min(SLOTS - 1)),
            generation: u16::from_le_bytes([low, high]),
        }
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

/// Whether a database went without a slot and there may be one by now; asks once.
pub fn take_room_for_others() -> bool {
    let mut registry = REGISTRY.exclusive();
    let room = registry.slots[..settings::max_databases()]
        .iter()
        .any(|slot| slot.database == 0);
    room && std::mem::take(&mut registry.crowded)
}

fn has_room_for(database: pg_sys::Oid) -> bool {
    REGISTRY.share().slots[..settings::max_databases()]
        .iter()
        .any(|slot| slot.database == 0 || slot.database == database.to_u32())
}

fn find_or_make(registry: &mut Registry, database: u32) -> Option<SlotIndex> {
    let slots = &mut registry.slots[..settings::max_databases()];
    let Some(index) = slots
        .iter()
        .position(|slot| slot.database == database)
        .or_else(|| slots.iter().position(|slot| slot.database == 0))
    else {
        registry.crowded = true;
        return None;
    };
    if slots[index].database == 0 {
        slots[index].reset(database);
    }
    Some(SlotIndex(index))
}

/// One slot as it is now.
pub fn slot(index: SlotIndex) -> Slot {
    REGISTRY.share().slots[index.0]
}

/// The launcher is about to start a worker here: what was asked for until now is answered by it. `None` when one has
/// come meanwhile that an earlier launcher sent off.
pub fn starting(index: SlotIndex) -> Option<Ticket> {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    if slot.worker != 0 {
        return None;
    }
    slot.requested = false;
    slot.absent = false;
    slot.stage = Stage::Connecting;
    // Whoever was sent off before, perhaps by a launcher that is gone, turns back.
    slot.generation = slot.generation.wrapping_add(1);
    Some(Ticket {
        index,
        generation: slot.generation,
    })
}

/// Forgets a database that has no extension, unless one was created meanwhile.
pub fn free_if_absent(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    let free = slot.absent && !slot.requested && slot.worker == 0;
    if free {
        slot.reset(0);
    }
    free
}

/// Keeps workers out of a database while this session's statement needs it to itself, and has one that is on its way
/// turn back, until [`unbar`]. `None` when there is none to be kept out.
pub fn bar(database: pg_sys::Oid) -> Option<SlotIndex> {
    if !crate::is_preloaded() {
        return None;
    }
    let wanted = database.to_u32();
    let mut registry = REGISTRY.exclusive();
    let index = registry
        .slots
        .iter()
        .position(|slot| slot.database == wanted)?;
    let slot = &mut registry.slots[index];
    // SAFETY: a plain variable of this process.
    slot.barred_by = unsafe { pg_sys::MyProcPid };
    slot.generation = slot.generation.wrapping_add(1);
    Some(SlotIndex(index))
}

/// Tells the worker of a database that is barred to go.
pub fn send_away(index: SlotIndex) {
    // One that is just connecting can neither be told to go nor be overtaken: it would be left with a
    // database that is gone. It takes milliseconds.
    let patience = Instant::now() + CONNECTING;
    loop {
        let slot = slot(index);
        if slot.worker == 0 || slot.stage != Stage::Connecting || Instant::now() >= patience {
            server::terminate(slot.worker);
            return;
        }
        server::wait(Duration::from_millis(1));
    }
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
            // SAFETY: a plain variable of this process.
            if slot.barred_by == unsafe { pg_sys::MyProcPid } {
                slot.barred_by = 0;
            }
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
    REGISTRY.exclusive().slots[index.0].reset(0);
}

/// This worker is about to connect to the database that is returned; `None` when it has come too late, for
/// a session needs the database to itself or the slot is another's by now. Ends with [`leave`].
#[must_use]
pub fn arrive(ticket: Ticket) -> Option<pg_sys::Oid> {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[ticket.index.0];
    if slot.database == 0 || slot.generation != ticket.generation || is_barred(slot) {
        return None;
    }
    // SAFETY: a plain variable of this process.
    slot.worker = unsafe { pg_sys::MyProcPid };
    slot.latch = server::own_proc_number();
    slot.stage = Stage::Connecting;
    Some(pg_sys::Oid::from(slot.database))
}

/// This worker is connected and can be told to go; false when it was, while it could not hear.
#[must_use]
pub fn look_around(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    slot.stage = Stage::Looking;
    !is_barred(slot)
}

/// This worker is here to stay; the launcher may start the next one.
pub fn serve(index: SlotIndex) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        registry.slots[index.0].stage = Stage::Serving;
        registry.launcher
    };
    server::wake(launcher);
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
    let database = unsafe { pg_sys::MyDatabaseId };
    if !has_room_for(database) {
        ereport!(
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            format!(
                "mailroom looks after {} databases at most, and this one is beyond that",
                settings::max_databases()
            ),
            "Its mail waits until there is room, or until somebody calls mailroom_collect(). See mailroom.max_databases."
        );
    }
    request_at_commit(database);
}

/// Asks for a worker in `database` once this transaction commits.
///
/// After the commit nothing may fail, hence no error when all slots are taken: the launcher looks at every
/// database again when there is room.
pub fn request_at_commit(database: pg_sys::Oid) {
    register_xact_callback(PgXactCallbackEvent::Commit, move || request(database));
}

/// Has the worker of this database look at once whether it can do its work, if it waits to try that again.
pub fn hurry() {
    if !crate::is_preloaded() {
        return;
    }
    // SAFETY: a plain variable of this process, set since it connected.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let latch = REGISTRY
        .share()
        .slots
        .iter()
        .find(|slot| slot.database == database && slot.worker != 0)
        .map(|slot| slot.latch);
    if let Some(latch) = latch {
        server::wake(latch);
    }
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
