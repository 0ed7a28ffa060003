//! The deliverer's bell, waited for within a runtime.

use std::os::fd::RawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The registration of a bell with a runtime. To be dropped before the deliverer whose bell it is.
pub struct Bell(AsyncFd<RawFd>);

impl Bell {
    /// Registers a bell, within a runtime with which it is not registered yet.
    ///
    /// # Errors
    /// When the system refuses.
    #[allow(
        deprecated,
        reason = "the other constructors want a descriptor with an owner or a lifetime, and `Owner::bell` has a number; \
                  a number that is another's by the time it is dropped costs a look, no memory"
    )]
    pub fn new(bell: RawFd) -> std::io::Result<Self> {
        AsyncFd::with_interest(bell, Interest::READABLE).map(Self)
    }

    /// Waits until it rings.
    pub async fn rung(&self) {
        if let Ok(mut ready) = self.0.readable().await {
            ready.clear_ready();
        }
    }

    /// As above; without one it never does.
    pub async fn rung_if_any(bell: Option<&Self>) {
        match bell {
            Some(bell) => bell.rung().await,
            None => std::future::pending().await,
        }
    }
}
