//! What this library has in shared memory: the layout, and where it is.
//!
//! Two areas, reserved while libraries are being preloaded and absent otherwise: the [`Registry`] of databases behind a
//! lock, and one [`Wakeup`] for each of its slots, made of atomics. Both hold plain numbers, never addresses, which mean
//! nothing in another process. The rules for using them are in `src/shared_memory/`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32};

use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, PgSharedMemoryInitialization, pg_shmem_init};

/// Databases that can have a worker at the same time.
pub const SLOTS: usize = 64;

/// Reserves the shared memory. Called from `_PG_init` while libraries are being preloaded.
pub fn reserve() {
    pg_shmem_init!(REGISTRY);
    pg_shmem_init!(WAKEUPS);
}

/// How far a worker has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// It is connecting to the database, and can neither be told to stop nor be waited for.
    #[default]
    Connecting,
    /// It can be told to stop, and looks for the extension.
    Looking,
    /// It found the extension: the launcher need not wait for it any longer.
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
    pub latch: i32,
    /// How far it has come.
    pub stage: Stage,
    /// `mailroom.stop_grace` in milliseconds, as that worker has it.
    pub stop_grace: u32,
    /// A session created the extension here and committed since the last start of a worker.
    pub requested: bool,
    /// The last worker looked and found no extension.
    pub absent: bool,
    /// Transactions whose statements need the database to themselves. Each takes itself off the count at its end; with a
    /// session that cannot, the server restarts, and with it this memory.
    pub blocks: u32,
    /// Changes whenever a worker that is still starting is to turn back.
    pub generation: u16,
}

/// The databases, under [`REGISTRY`].
#[derive(Clone, Copy)]
pub struct Registry {
    /// Index of the launcher in the server's process array, for its latch; -1 while there is none.
    pub launcher: i32,
    /// A database went without a slot because all were in use.
    pub slot_shortage: bool,
    /// By [`SlotIndex`](crate::shared_memory::registry::SlotIndex).
    pub slots: [Slot; SLOTS],
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            launcher: -1,
            slot_shortage: false,
            slots: [Slot::default(); SLOTS],
        }
    }
}

// SAFETY: plain numbers, no addresses, valid in every process; all access is under the lock.
unsafe impl PGRXSharedMemory for Registry {}

/// Under a lock because all of it is rare.
// SAFETY: the name is this extension's own.
pub static REGISTRY: PgLwLock<Registry> = unsafe { PgLwLock::new(c"mailroom") };

/// What writers and the worker of one database share.
pub struct Wakeup {
    /// `pg_database.oid` of the database whose worker listens; 0 for none.
    pub database: AtomicU32,
    /// The worker's index in the server's array of processes.
    pub worker: AtomicI32,
    /// Tokens announced and not accounted for yet.
    pub announced: AtomicU32,
    /// Whether one of them was urgent.
    pub urgent: AtomicBool,
    /// Whether a request for a link was announced.
    pub requested: AtomicBool,
    /// Something was announced of which outside listeners have not heard yet.
    pub notify_owed: AtomicBool,
    /// How many fill a batch.
    pub limit: AtomicU32,
    /// Something besides the queue changed: the worker is to check everything.
    pub recheck: AtomicBool,
    /// A transaction that had taken tokens was rolled back.
    pub given_back: AtomicBool,
    /// Mail was announced that is due.
    pub due_now: AtomicBool,
    /// Whether some of it is urgent.
    pub urgent_due: AtomicBool,
    /// The earliest time to come at which the outbox needs the worker, as announced and not taken note of yet:
    /// microseconds since 2000-01-01, `i64::MAX` for none.
    pub due: AtomicI64,
    /// What `mailroom_status()` shows of the worker.
    pub status: Status,
    /// When each of the two lines on abuse was last written to the log, as in [`Status`].
    pub logged: [AtomicI64; 2],
}

/// What a worker publishes of itself. Each field is true by itself; together they may be of two moments.
#[derive(Default)]
pub struct Status {
    /// Its process id.
    pub pid: AtomicI32,
    /// When it started; timestamps as the server has them: microseconds since 2000-01-01, 0 for never.
    pub since: AtomicI64,
    /// When it last took a batch.
    pub last_batch: AtomicI64,
    /// Failures since its last success.
    pub failures: AtomicU32,
    /// When it will wake up.
    pub next_wake: AtomicI64,
    /// For what, a [`Next`](crate::shared_memory::wakeup::Next).
    pub next: AtomicU32,
}

struct Wakeups {
    /// Where shared memory has them, in this process; null unless the library was preloaded.
    shared: UnsafeCell<*mut [Wakeup; SLOTS]>,
}

// SAFETY: the cell is written once, in the postmaster before it forks, and only read from then on; what it
// points to is made of atomics.
unsafe impl Sync for Wakeups {}

static WAKEUPS: Wakeups = Wakeups {
    shared: UnsafeCell::new(std::ptr::null_mut()),
};

impl PgSharedMemoryInitialization for Wakeups {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: called by the server from its shmem_request_hook.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<[Wakeup; SLOTS]>()) };
    }

    unsafe fn on_shmem_startup(&'static self, (): ()) {
        let mut found = false;
        // SAFETY: called by the server from its shmem_startup_hook, in the postmaster, before any other process is
        // attached. All-zero bytes are valid: no worker listens and nothing was announced.
        unsafe {
            let size = size_of::<[Wakeup; SLOTS]>();
            let place = pg_sys::ShmemInitStruct(c"mailroom wakeups".as_ptr(), size, &mut found);
            if !found {
                place.cast::<u8>().write_bytes(0, size);
            }
            *self.shared.get() = place.cast();
        }
    }
}

/// All of them, by the index of their slot; none unless the library was preloaded.
pub fn wakeups() -> &'static [Wakeup] {
    // SAFETY: see Sync; the memory is mapped for as long as the process lives.
    unsafe { (*WAKEUPS.shared.get()).as_ref() }.map_or(&[], |wakeups| wakeups.as_slice())
}
