//! The launcher's table in shared memory: which databases have a worker, need one, or have no extension.
//!
//! The launcher frees slots, a worker fills in its own slot, and a session that creates the extension requests a
//! worker. The shared memory exists only if the library was preloaded.

use std::time::{Duration, Instant};

use pgrx::prelude::*;
use pgrx::{PgXactCallbackEvent, register_xact_callback};

use crate::pg::shared_memory::{REGISTRY, Registry, SLOTS, Slot, Stage};
use crate::pg::{process, version};
use crate::settings;

/// How long a session waits for a worker that is connecting. The server itself waits 5 s for other sessions to
/// disconnect.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long a stopping worker may take beyond `mailroom.stop_grace` to settle mail that was in flight.
const SETTLING: Duration = Duration::from_secs(3);
/// How often a session checks whether a worker has left its slot.
const LOOK: Duration = Duration::from_millis(2);

impl Slot {
    /// Assigns the slot to another database, or to none (0). A worker that is still starting for the old database then
    /// exits.
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
    /// The index as a number.
    pub fn get(self) -> usize {
        self.0
    }
}

/// The start argument of a worker: a slot and its generation at that time.
#[derive(Clone, Copy)]
pub struct StartToken {
    index: SlotIndex,
    generation: u16,
}

impl StartToken {
    /// The index of the slot.
    pub fn index(self) -> SlotIndex {
        self.index
    }

    /// Encodes the token as a worker's start argument.
    pub fn to_datum(self) -> pg_sys::Datum {
        pg_sys::Datum::from(self.index.0 << 16 | usize::from(self.generation))
    }

    /// Decodes a worker's start argument.
    pub fn from_datum(datum: pg_sys::Datum) -> Self {
        let [low, high, ..] = datum.value().to_le_bytes();
        Self {
            index: SlotIndex((datum.value() >> 16).min(SLOTS - 1)),
            generation: u16::from_le_bytes([low, high]),
        }
    }
}

/// Registers this process as the launcher, whose latch [`request`], [`unblock_workers`], [`mark_serving`] and
/// [`unregister`] set.
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

/// Returns the slot of `database`, and assigns one if it has none. Returns `None` if all slots are in use.
pub fn slot_for(database: pg_sys::Oid) -> Option<SlotIndex> {
    find_or_make(&mut REGISTRY.exclusive(), database.to_u32())
}

/// Whether a database was refused a slot and a slot is free now. Returns true once per shortage.
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

/// Returns a copy of a slot.
pub fn slot(index: SlotIndex) -> Slot {
    REGISTRY.share().slots[index.0]
}

/// Prepares a slot for the start of a worker, which answers all earlier requests. Returns `None` if a worker that an
/// earlier launcher started has registered in the meantime.
pub fn starting(index: SlotIndex) -> Option<StartToken> {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    if slot.worker != 0 {
        return None;
    }
    slot.requested = false;
    slot.absent = false;
    slot.starved = false;
    slot.stage = Stage::Connecting;
    // A worker that was started before, perhaps by an earlier launcher, and has not registered exits.
    slot.generation = slot.generation.wrapping_add(1);
    Some(StartToken {
        index,
        generation: slot.generation,
    })
}

/// Notes that there was no free worker process for this slot.
pub fn note_starved(index: SlotIndex) {
    REGISTRY.exclusive().slots[index.0].starved = true;
}

/// Why a database has no worker, with the remedy; `None` if it has one, or if the launcher will start one.
pub fn why_no_worker(database: pg_sys::Oid) -> Option<String> {
    if !crate::is_preloaded() {
        return Some(
            "the library is not preloaded; add mailroom to shared_preload_libraries".to_owned(),
        );
    }
    // A worker is started when the standby is promoted.
    if process::is_in_recovery() {
        return None;
    }
    let (has_launcher, slot) = {
        let registry = REGISTRY.share();
        let found = registry
            .slots
            .iter()
            .find(|slot| slot.database == database.to_u32());
        (registry.launcher >= 0, found.copied())
    };
    if !has_launcher || slot.is_some_and(|slot| slot.worker == 0 && slot.starved) {
        return Some("there is no free worker process; raise max_worker_processes".to_owned());
    }
    if slot.is_none() && !has_room_for(database) {
        return Some(format!(
            "mailroom looks after {} databases at most; raise mailroom.max_databases",
            settings::max_databases()
        ));
    }
    None
}

/// Frees the slot of a database that has no extension, unless a worker was requested or has registered, or a session
/// blocks the database. Returns whether it did.
pub fn free_if_absent(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    let free = slot.absent && !slot.requested && slot.worker == 0 && !is_blocked(slot);
    if free {
        slot.reset(0);
    }
    free
}

/// Keeps workers out of a database that this session's statement needs exclusively, until [`unblock_workers`] has been
/// called as often. A worker that is starting exits. Returns `None` if the database has no slot.
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

/// Terminates the worker of a blocked database, and waits until it has left its slot: the server itself waits only 5 s
/// for other sessions, and the worker may wait as long for responses to requests in flight.
pub fn terminate_worker(index: SlotIndex) {
    // A worker that is connecting cannot be stopped yet, and the statement must not get ahead of it: the worker would
    // be in a database that no longer exists. Connecting takes milliseconds.
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

/// Waits until this worker has left its slot, but no longer than its stop may take.
fn wait_for_end(index: SlotIndex, worker: i32) {
    // The worker's own value: the setting may differ in that database.
    let grace = Duration::from_millis(slot(index).stop_grace.into());
    let patience = Instant::now() + grace + SETTLING;
    while worker != 0 && slot(index).worker == worker && Instant::now() < patience {
        process::wait(LOOK);
    }
}

/// Reverts one [`block_workers`], and requests a worker, which the launcher starts if the database still exists.
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

/// Frees the slot of a database that was dropped or accepts no connections, unless a session blocks it.
pub fn forget(index: SlotIndex) {
    let slot = &mut REGISTRY.exclusive().slots[index.0];
    if !is_blocked(slot) {
        slot.reset(0);
    }
}

/// Registers this worker in its slot until [`unregister`]. Returns the database to connect to, or `None` if the token
/// is out of date: a session blocks the database, another worker was started, or the slot was freed or reassigned.
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

/// Notes that this worker is connected and can be terminated. Returns false if a session has blocked the database in
/// the meantime, so that the worker must exit.
#[must_use]
pub fn check_blocked(index: SlotIndex) -> bool {
    let mut registry = REGISTRY.exclusive();
    let slot = &mut registry.slots[index.0];
    slot.stage = Stage::Looking;
    !is_blocked(slot)
}

/// Marks this worker as serving: the launcher no longer waits for it, and may start the next one.
pub fn mark_serving(index: SlotIndex) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        registry.slots[index.0].stage = Stage::Serving;
        registry.launcher
    };
    process::set_latch_of(launcher);
}

/// Publishes `mailroom.stop_grace` of this worker, after its settings were read or changed.
pub fn note_stop_grace(index: SlotIndex) {
    let grace = u32::try_from(settings::stop_grace().as_millis()).unwrap_or(u32::MAX);
    REGISTRY.exclusive().slots[index.0].stop_grace = grace;
}

/// Notes that this worker's database does not have the extension.
pub fn report_absent(index: SlotIndex) {
    REGISTRY.exclusive().slots[index.0].absent = true;
}

/// Removes this worker from its slot. The launcher decides what follows.
pub fn unregister(index: SlotIndex) {
    let launcher = {
        let mut registry = REGISTRY.exclusive();
        registry.slots[index.0].worker = 0;
        registry.launcher
    };
    process::set_latch_of(launcher);
}

/// Requests a worker for this database when this transaction commits. Warns if the library was not preloaded, or if all
/// slots are in use.
#[pg_extern(sql = false)]
fn _request_worker() {
    if !crate::is_preloaded() {
        ereport!(
            // Not a NOTICE, because CREATE EXTENSION suppresses those.
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

/// Requests a worker for `database` when this transaction commits.
///
/// After the commit nothing may fail, so there is no error if all slots are in use: the launcher checks every database
/// again when a slot is free.
pub fn request_at_commit(database: pg_sys::Oid) {
    register_xact_callback(PgXactCallbackEvent::Commit, move || request(database));
}

/// Wakes the worker of this database. If it waits to retry its start, it retries at once.
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

/// Requests a worker for `database` now.
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
