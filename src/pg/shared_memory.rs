//! The layout and the location of this library's shared memory.
//!
//! Two areas are reserved while libraries are being preloaded, and absent otherwise: the [`Registry`] of databases,
//! under a lock, and one [`Wakeup`] of atomics for each of its slots. Both hold plain numbers, never addresses, which
//! mean nothing in another process. The rules for using them are in `src/shared_memory/`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32};

use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, PgSharedMemoryInitialization, pg_shmem_init};

/// Number of databases that can have a worker at the same time.
pub const SLOTS: usize = 64;

/// Reserves the shared memory. Called from `_PG_init` while libraries are being preloaded.
pub fn reserve() {
    pg_shmem_init!(REGISTRY);
    pg_shmem_init!(WAKEUPS);
}

/// How far the start of a worker has progressed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// It is connecting to the database and cannot be told to stop yet: a session first waits for it, at most 5 s.
    #[default]
    Connecting,
    /// It can be told to stop, and is looking for the extension.
    Looking,
    /// It found the extension, or failed to start its work and keeps trying. The launcher no longer waits for it.
    Serving,
}

/// A database as seen by the launcher and the workers.
#[derive(Clone, Copy, Default)]
pub struct Slot {
    /// `pg_database.oid`; 0 for a free slot.
    pub database: u32,
    /// Process id of the worker that serves the database or is starting to; 0 while there is none.
    pub worker: i32,
    /// The worker's index in the server's process array, for its latch.
    pub latch: i32,
    /// How far its start has progressed.
    pub stage: Stage,
    /// The worker's value of `mailroom.stop_grace`, in milliseconds.
    pub stop_grace: u32,
    /// A session has asked for a worker since the launcher last started one, for example by CREATE EXTENSION.
    pub requested: bool,
    /// The last worker found no extension.
    pub absent: bool,
    /// There was no free worker process when the launcher last tried to start a worker.
    pub starved: bool,
    /// Number of statements that need the database to themselves and whose transactions have not ended. Those decrement
    /// it at their end; if a session crashes and cannot, the server restarts and resets this memory.
    pub blocks: u32,
    /// Incremented to make a worker that was started but has not registered yet exit.
    pub generation: u16,
}

/// The databases, protected by the lock of [`REGISTRY`].
#[derive(Clone, Copy)]
pub struct Registry {
    /// Index of the launcher in the server's process array, for its latch; -1 while there is none.
    pub launcher: i32,
    /// A database got no slot because all were in use.
    pub slot_shortage: bool,
    /// Indexed by [`SlotIndex`](crate::shared_memory::registry::SlotIndex).
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

/// Behind one lock, because every access is rare.
// SAFETY: the name is this extension's own.
pub static REGISTRY: PgLwLock<Registry> = unsafe { PgLwLock::new(c"mailroom") };

/// The state that the writers and the worker of one database share.
pub struct Wakeup {
    /// `pg_database.oid` of the database whose worker listens; 0 if none does.
    pub database: AtomicU32,
    /// The worker's index in the server's process array, for its latch.
    pub worker: AtomicI32,
    /// Number of tokens announced and not accounted for yet.
    pub announced: AtomicU32,
    /// Whether one of them was urgent.
    pub urgent: AtomicBool,
    /// Whether a request for a link was announced.
    pub requested: AtomicBool,
    /// Whether tokens were announced about which listeners outside have not been notified yet.
    pub notify_owed: AtomicBool,
    /// Number of tokens that fill a batch.
    pub limit: AtomicU32,
    /// Something besides the queue changed: the worker must check everything.
    pub recheck: AtomicBool,
    /// A transaction ended whose changes no session could announce: the worker must search for them.
    pub search: AtomicBool,
    /// A (sub)transaction that had taken tokens was rolled back.
    pub given_back: AtomicBool,
    /// Due mail was announced.
    pub due_now: AtomicBool,
    /// Whether some of the due mail is urgent.
    pub urgent_due: AtomicBool,
    /// Mail was announced, due now or later, whose transport the worker does not have.
    pub for_clients: AtomicBool,
    /// The earliest future time at which the outbox needs the worker, of those announced since the worker last read
    /// this field: microseconds since 2000-01-01, `i64::MAX` for none.
    pub due: AtomicI64,
    /// What `mailroom_status()` shows about the worker.
    pub status: Status,
    /// When each kind of log line about abuse was last written, as a time of [`Status`].
    pub logged: [AtomicI64; 3],
}

/// What a worker publishes about itself. Each field is correct by itself, but fields may be from different moments.
/// Times are in microseconds since 2000-01-01, as the server's timestamps; 0 for never.
#[derive(Default)]
pub struct Status {
    /// The worker's process id.
    pub pid: AtomicI32,
    /// When it started.
    pub since: AtomicI64,
    /// When it last collected a batch.
    pub last_batch: AtomicI64,
    /// Failures since its last success.
    pub failures: AtomicU32,
    /// When it will wake up.
    pub next_wake: AtomicI64,
    /// The reason for that wake-up, a [`Next`](crate::shared_memory::wakeup::Next).
    pub next: AtomicU32,
}

struct Wakeups {
    /// Address of the wakeups in this process; null unless the library was preloaded.
    shared: UnsafeCell<*mut [Wakeup; SLOTS]>,
}

// SAFETY: the cell is written only in the postmaster, before it forks, and only read from then on; what it
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
        // attached. All-zero bytes are valid: no worker listens and no token was announced.
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

/// All wakeups, indexed by slot; empty unless the library was preloaded.
pub fn wakeups() -> &'static [Wakeup] {
    // SAFETY: see `Sync` of `Wakeups`; the memory is mapped for as long as the process lives.
    unsafe { (*WAKEUPS.shared.get()).as_ref() }.map_or(&[], |wakeups| wakeups.as_slice())
}
