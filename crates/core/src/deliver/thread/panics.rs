//! How a panic on the delivery thread is logged: by its place alone, because its message may quote a mail.

use std::cell::Cell;
use std::io::Write;
use std::sync::Once;

thread_local! {
    static IS_DELIVERY_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the current thread as a delivery thread.
pub(super) fn mark_thread() {
    IS_DELIVERY_THREAD.set(true);
}

/// Installs the panic hook, once in a process. Panics of other threads go to the hook that was installed before.
pub(super) fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_DELIVERY_THREAD.try_with(Cell::get).unwrap_or(false) {
                return previous(info);
            }
            let place = info.location().map(ToString::to_string);
            // This thread may not call the server's functions. The server's log contains its standard error if the logging
            // collector runs.
            let _ = writeln!(
                std::io::stderr(),
                "mailroom worker: a panic in the sending thread at {}",
                place.unwrap_or_default()
            );
        }));
    });
}
