//! Waiting until a file descriptor is readable, within a tokio runtime.

use std::os::fd::RawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A file descriptor that is registered with a runtime. It must be dropped before the descriptor is closed.
pub struct ReadableFd(AsyncFd<RawFd>);

impl ReadableFd {
    /// Registers a file descriptor with the current runtime, where it must not be registered yet.
    ///
    /// # Errors
    /// If the system refuses the registration.
    #[allow(
        deprecated,
        reason = "the other constructors need a descriptor with an owner or a lifetime, and `JobRunner::jobs_fd` returns a \
                  number; a number that was closed and reused causes an unneeded wake-up, and no memory error"
    )]
    pub fn new(fd: RawFd) -> std::io::Result<Self> {
        AsyncFd::with_interest(fd, Interest::READABLE).map(Self)
    }

    /// Waits until the descriptor is readable.
    pub async fn readable(&self) {
        if let Ok(mut ready) = self.0.readable().await {
            ready.clear_ready();
        }
    }

    /// Waits until the descriptor is readable; without a descriptor, without end.
    pub async fn readable_if_any(fd: Option<&Self>) {
        match fd {
            Some(fd) => fd.readable().await,
            None => std::future::pending().await,
        }
    }
}
