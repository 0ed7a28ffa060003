//! Which databases have a worker, want one, or turned out not to: the launcher's table in shared memory.
//!
//! The launcher frees slots; a worker fills in its own; a session that creates the extension asks for one. Shared
//! memory exists only when the library was preloaded.

use std::time::{Duration, Instant};

use pgrx::prelude::*;
use pgrx::{PgXactCallbackEvent, register_xact_callback};

use crate::pg::shared_memory::{REGISTRY, Registry, SLOTS, Slot, Stage};
use crate::pg::{process, version};
use crate::settings;

/// How long a session waits for a worker that is just connecting. The server itself waits five seconds for
/// other sessions to go.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long a worker that stops may take beyond `mailroom.stop_grace`, to settle what was in flight.
const SETTLING: Duration = Duration::from_secs(3);
/// How often a session looks whether a worker has gone.
const LOOK: Duration = Duration::from_millis(2);

impl Slot {
    /// A slot for another database, or for none. A worker that was starting in the old one notices.
    fn reset(&mut self, database: u32) {
        *self = Self {
            database,
            generation: self.generation.wrapping_add(1),
            ..Self::default()
        };
    }
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
pub struct StartToken {
    index: SlotIndex,
    generation: u16,
}

impl StartToken {
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

/// Makes this process the one whose latch [`request_at_commit`] and [`unregister`] set.
pub fn register_launcher() {
    REGISTRY.exclusive().launcher = version::own_proc_number();
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
pub fn take_slot_available() -> bool {
    let mut registry = REGISTRY.exclusive();
    let room = registry.slots[..settings::max_databases()]
        .iter()
        .any(|slot| slot.database == 0);
    room && std::mem::take(&mut registry.slot_shortage)
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
        registry.slot_shortage = true;
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
pub fn starting(index: SlotIndex) -> Option<StartToken> {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    if slot.worker != 0 {
        return None;
    }
    slot.requested = false;
    slot.absent = false;
    slot.stage = Stage::Connecting;
    // A worker that was started before, perhaps by an earlier launcher, exits.
    slot.generation = slot.generation.wrapping_add(1);
    Some(StartToken {
        index,
        generation: slot.generation,
    })
}

/// Forgets a database that has no extension, unless one was created meanwhile.
pub fn free_if_absent(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    let free = slot.absent && !slot.requested && slot.worker == 0 && !is_blocked(slot);
    if free {
        slot.reset(0);
    }
    free
}

/// Keeps workers out of a database while this session's statement needs it to itself, and has one that is on its way
/// turn back, until [`unblock_workers`] is called as often. `None` when there is none to be kept out.
pub fn block_workers(database: pg_sys::Oid) -> Option<SlotIndex> {
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
    slot.blocks = slot.blocks.saturating_add(1);
    slot.generation = slot.generation.wrapping_add(1);
    Some(SlotIndex(index))
}

/// Terminates the worker of a database that is blocked, and waits until it is gone: the server itself waits five seconds
/// for other sessions to go, and the worker may wait as long as that for answers to requests in flight.
pub fn terminate_worker(index: SlotIndex) {
    // One that is just connecting can neither be told to go nor be overtaken: it would be left with a
    // database that is gone. It takes milliseconds.
    let patience = Instant::now() + CONNECTING;
    loop {
        let slot = slot(index);
        if slot.worker == 0 || slot.stage != Stage::Connecting || Instant::now() >= patience {
            process::terminate(slot.worker);
            return wait_for_end(index, slot.worker);
        }
        process::wait(LOOK);
    }
}

/// Waits until this worker has left its slot, for as long as its stop may take.
fn wait_for_end(index: SlotIndex, worker: i32) {
    // Its own: the setting may be another in that database.
    let grace = Duration::from_millis(slot(index).stop_grace.into());
    let patience = Instant::now() + grace + SETTLING;
    while worker != 0 && slot(index).worker == worker && Instant::now() < patience {
        process::wait(LOOK);
    }
}

/// Ends what [`block_workers`] began: a worker comes back if the database is still there.
pub fn unblock_workers(database: pg_sys::Oid) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        let wanted = database.to_u32();
        if let Some(slot) = registry
            .slots
            .iter_mut()
            .find(|slot| slot.database == wanted)
        {
            slot.blocks = slot.blocks.saturating_sub(1);
            slot.requested = true;
        }
        registry.launcher
    };
    process::set_latch_of(launcher);
}

/// Whether sessions keep workers out of this slot's database.
pub fn is_blocked(slot: &Slot) -> bool {
    slot.blocks > 0
}

/// Forgets a database that was dropped or takes no connections, unless a session blocks it.
pub fn forget(index: SlotIndex) {
    let slot = &mut REGISTRY.exclusive().slots[index.0];
    if !is_blocked(slot) {
        slot.reset(0);
    }
}

/// This worker is about to connect to the database that is returned; `None` when it has come too late, for
/// a session needs the database to itself or the slot is another's by now. Ends with [`unregister`].
#[must_use]
pub fn register(token: StartToken) -> Option<pg_sys::Oid> {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[token.index.0];
    if slot.database == 0 || slot.generation != token.generation || is_blocked(slot) {
        return None;
    }
    slot.worker = process::pid();
    slot.latch = version::own_proc_number();
    slot.stage = Stage::Connecting;
    Some(pg_sys::Oid::from(slot.database))
}

/// This worker is connected and can be told to go; false when it was, while it could not hear.
#[must_use]
pub fn check_blocked(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    slot.stage = Stage::Looking;
    !is_blocked(slot)
}

/// This worker is here to stay; the launcher may start the next one.
pub fn mark_serving(index: SlotIndex) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        registry.slots[index.0].stage = Stage::Serving;
        registry.launcher
    };
    process::set_latch_of(launcher);
}

/// This worker has its settings, perhaps others than before.
pub fn note_stop_grace(index: SlotIndex) {
    let grace = u32::try_from(settings::stop_grace().as_millis()).unwrap_or(u32::MAX);
    REGISTRY.exclusive().slots[index.0].stop_grace = grace;
}

/// This worker looked and there is no extension.
pub fn report_absent(index: SlotIndex) {
    REGISTRY.exclusive().slots[index.0].absent = true;
}

/// This worker is gone; the launcher decides what follows.
pub fn unregister(index: SlotIndex) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        registry.slots[index.0].worker = 0;
        registry.launcher
    };
    process::set_latch_of(launcher);
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
            "Tokens wait in pending until a client calls mailroom_collect() or mailroom_dequeue()."
        );
        return;
    }
    let database = process::database();
    if !has_room_for(database) {
        ereport!(
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            format!(
                "mailroom looks after {} databases at most, and this one is beyond that",
                settings::max_databases()
            ),
            "Its mail waits until there is room, or until a client calls mailroom_collect(). See mailroom.max_databases."
        );
    }
    request_at_commit(database);
}

/// Asks for a worker in `database` once this transaction commits.
///
/// After the commit nothing may fail, so there is no error when all slots are taken: the launcher looks at every
/// database again when there is room.
pub fn request_at_commit(database: pg_sys::Oid) {
    register_xact_callback(PgXactCallbackEvent::Commit, move || request(database));
}

/// Has the worker of this database look at once whether it can do its work, if it waits to try that again.
pub fn wake_worker() {
    if !crate::is_preloaded() {
        return;
    }
    let database = process::database().to_u32();
    let latch = REGISTRY
        .share()
        .slots
        .iter()
        .find(|slot| slot.database == database && slot.worker != 0)
        .map(|slot| slot.latch);
    if let Some(latch) = latch {
        process::set_latch_of(latch);
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
    process::set_latch_of(launcher);
}
