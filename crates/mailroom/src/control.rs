//! What the program was told by signals, for all of its threads.

use tokio::sync::watch;

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// End.
    pub stop: bool,
    /// How often the transports file was to be read again.
    pub reloads: u64,
}

/// The orders, as a thread sees them.
#[derive(Clone)]
pub struct Control(watch::Receiver<Orders>);

impl Control {
    /// The orders, and who gives them.
    pub fn new() -> (watch::Sender<Orders>, Self) {
        let (sender, receiver) = watch::channel(Orders::default());
        (sender, Self(receiver))
    }

    /// As they are now.
    pub fn orders(&self) -> Orders {
        *self.0.borrow()
    }

    /// Waits for others.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Who gives them is gone, and with it the program.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it is told to stop.
    pub async fn stopped(&mut self) {
        while !self.orders().stop {
            self.changed().await;
        }
    }
}
