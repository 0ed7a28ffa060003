//! What a transport can do with several messages, and with a message that it may have had before. Pure.

use std::time::Duration;

use crate::message::Message;

/// What the deliverer needs to know of a transport to form requests and to repeat them.
pub trait Capabilities: Send + Sync {
    /// The most messages one request takes; 1 without a batch call that tells of each message.
    fn batch_limit(&self) -> usize {
        1
    }

    /// Whether these messages may share a request: some batch calls want the same contents.
    fn may_share(&self, _first: &Message, _other: &Message) -> bool {
        true
    }

    /// Whether the provider itself recognises a request that it has had, so that sending it again is safe.
    fn is_idempotent(&self) -> bool;

    /// How long it does, if it [does][Capabilities::is_idempotent]: at least so long after the request.
    fn remembers_for(&self) -> Duration {
        Duration::MAX
    }
}
