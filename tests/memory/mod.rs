//! How much memory a thread has at a time and in all: an allocator that counts, for a test program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Octets. What another thread gives back is missing in the figures of both, which is no matter where one works alone.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The most that there was at a time, beyond what there was at the beginning.
    pub peak: usize,
    /// All that was asked for.
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

// SAFETY: all is the system's allocator's; counting allocates nothing, as the cells need no initialisation and no
// destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are there while one is copied to the other.
        take(size);
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Does something, and tells what memory this thread took for it.
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
