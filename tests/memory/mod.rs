//! An allocator that measures a thread's peak and total memory, for a test program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// In bytes. Memory that one thread allocates and another frees falsifies the figures of both; tests use one thread.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The peak, above the level at the start.
    pub peak: usize,
    /// The sum of all allocations.
    pub total: usize,
}

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static TOTAL: Cell<usize> = const { Cell::new(0) };
}

fn take(octets: usize) {
    let held = HELD.get() + octets.cast_signed();
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
    TOTAL.set(TOTAL.get() + octets);
}

fn give_back(octets: usize) {
    HELD.set(HELD.get() - octets.cast_signed());
}

// SAFETY: each call is forwarded to the system's allocator. Counting does not allocate, because the cells need no
// initialization and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's obligations are those of the call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while one is copied to the other.
        take(size);
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work`; returns its result and the memory that this thread allocated for it.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Figures) {
    let (held, total) = (HELD.get(), TOTAL.get());
    PEAK.set(held);
    let result = work();
    let figures = Figures {
        peak: (PEAK.get() - held).cast_unsigned(),
        total: TOTAL.get() - total,
    };
    (result, figures)
}
