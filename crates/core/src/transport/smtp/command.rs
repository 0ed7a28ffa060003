//! One command and its reply, before a message is sent.

use super::outcome::{self, Stage};
use super::reply::Reply;
use super::wire::{Broke, Wire};
use crate::transport::delivered::Delivered;

/// The result of a message whose session could not be opened. Boxed because it is large and rare.
pub(super) type Stopped = Box<Delivered>;

/// Sends a command and waits for its reply.
///
/// # Errors
/// When there is no reply.
pub(super) async fn ask(wire: &mut Wire, command: &str) -> Result<Reply, Stopped> {
    wire.write(command.as_bytes())
        .await
        .map_err(|broke| lost(&broke))?;
    wire.reply().await.map_err(|broke| lost(&broke))
}

/// The result of a message whose session this reply ended.
pub(super) fn result_of(reply: &Reply, stage: Stage) -> Stopped {
    Box::new(Delivered::decided(
        outcome::of(reply, stage),
        Some(reply.code),
    ))
}

/// The result of a message whose connection was lost before there was a session.
pub(super) fn lost(broke: &Broke) -> Stopped {
    Box::new(Delivered::not_sent(format!(
        "no session: {}",
        broke.reason()
    )))
}
