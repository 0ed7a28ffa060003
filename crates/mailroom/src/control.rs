//! Stop and reload requests of signals, for all threads.

use tokio::sync::watch;

/// The requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlState {
    /// Whether to stop.
    pub stop: bool,
    /// How many times a reload of the transports file was requested.
    pub reloads: u64,
}

/// The requests, as a thread reads them.
#[derive(Clone)]
pub struct Control(watch::Receiver<ControlState>);

impl Control {
    /// The writing and the reading side.
    pub fn new() -> (watch::Sender<ControlState>, Self) {
        let (sender, receiver) = watch::channel(ControlState::default());
        (sender, Self(receiver))
    }

    /// The reading side of this writing side.
    pub fn of(sender: &watch::Sender<ControlState>) -> Self {
        Self(sender.subscribe())
    }

    /// The current requests.
    pub fn state(&self) -> ControlState {
        *self.0.borrow()
    }

    /// Waits for a further request.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The writing side is gone, so the program ends.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a stop.
    pub async fn stopped(&mut self) {
        while !self.state().stop {
            self.changed().await;
        }
    }
}
