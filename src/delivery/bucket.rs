//! The one bucket of the server, in shared memory: `mailroom.rate_limit` holds over the workers of all
//! databases together.
//!
//! It is one atomic number, so that nobody waits for anybody. The clock is the machine's monotonic one, which is
//! the same in all processes and does not jump when the wall clock is set. A server that starts begins with
//! an empty bucket.

use std::cell::UnsafeCell;
use std::time::Duration;

use pgrx::prelude::*;
use pgrx::{PgSharedMemoryInitialization, pg_shmem_init};

use super::pace::{Bucket, Granted, Rate};
use crate::settings::pace as settings;

struct SharedBucket {
    /// Where shared memory has it, in this process; null unless the library was preloaded.
    shared: UnsafeCell<*mut Bucket>,
}

// SAFETY: the cell is written once, in the postmaster before it forks, and only read from then on; what it
// points to is an atomic.
unsafe impl Sync for SharedBucket {}

static BUCKET: SharedBucket = SharedBucket {
    shared: UnsafeCell::new(std::ptr::null_mut()),
};

/// What a process has that shares with nobody: it can happen only without shared memory, where there is no worker.
static OWN: Bucket = Bucket::new();

impl PgSharedMemoryInitialization for SharedBucket {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: called by the server from its shmem_request_hook.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<Bucket>()) };
    }

    unsafe fn on_shmem_startup(&'static self, (): ()) {
        let mut found = false;
        // SAFETY: called by the server from its shmem_startup_hook, in the postmaster, where nobody else is
        // about. All-zero bytes are a valid bucket.
        unsafe {
            let size = size_of::<Bucket>();
            let place = pg_sys::ShmemInitStruct(c"mailroom bucket".as_ptr(), size, &mut found);
            if !found {
                place.cast::<u8>().write_bytes(0, size);
            }
            *self.shared.get() = place.cast();
        }
    }
}

fn bucket() -> &'static Bucket {
    // SAFETY: see Sync; the memory is mapped for as long as the process lives.
    unsafe { (*BUCKET.shared.get()).as_ref() }.unwrap_or(&OWN)
}

/// Reserves the shared memory. Called from `_PG_init` while libraries are being preloaded.
pub fn reserve() {
    pg_shmem_init!(BUCKET);
}

/// The rate in force; `None` without one.
pub fn rate() -> Option<Rate> {
    settings::rate()
}

/// Asks for `wanted` messages at this rate; as many as it grants may go now, and no more before it is asked again.
/// What does not go after all is to be given back.
pub fn grant(rate: Rate, wanted: u32) -> Granted {
    bucket().grant(rate, monotonic, wanted)
}

/// Gives back what did not go.
pub fn give_back(rate: Rate, unused: u32) {
    bucket().give_back(rate, unused);
}

/// How long until so many may go at once, or as many as ever may.
pub fn wait_for(rate: Rate, wanted: u32) -> Duration {
    bucket().wait_for(rate, monotonic, wanted)
}

/// Nanoseconds of the machine's monotonic clock: unlike an `Instant` they mean the same in every process.
fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the struct it is given. The clock is there on every system that PostgreSQL runs on.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + nanoseconds
}
