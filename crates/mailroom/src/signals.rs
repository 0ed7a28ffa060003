//! The signals that the program handles.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To stop: SIGTERM or SIGINT.
    Stop,
    /// To read the transports file again: SIGHUP.
    Reload,
    /// Nothing: SIGUSR1, which would end the process otherwise.
    Nothing,
}

/// The signals.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: Signal,
}

impl Signals {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::Reload,
            _ = self.user.recv() => Asked::Nothing,
        }
    }
}
