//! A server that replies any bytes, for the fuzz target `smtp`. Part of no other build.

use std::io::Cursor;
use std::time::SystemTime;

use tokio::time::Instant;

use super::session::Session;
use super::{RECIPIENTS_MAX, Relay};
use crate::message::Message;
use crate::transport::delivered::Delivered;
use crate::transport::mime;
use crate::transport::providers::mailbox::Ready;

impl Relay {
    /// Sends one message over a connection whose server replies these bytes to all commands.
    pub async fn send_to_bytes(&self, replies: Vec<u8>, message: &Message) -> Delivered {
        let ready = match Ready::new(message, RECIPIENTS_MAX) {
            Ok(ready) => ready,
            Err(reason) => return Delivered::unsendable(reason),
        };
        let content = match mime::build(&self.from, &ready, SystemTime::UNIX_EPOCH) {
            Ok(content) => content,
            Err(reason) => return Delivered::unsendable(reason),
        };
        let deadline = Instant::now() + self.limit.of(content.len());
        let stream = tokio::io::join(Cursor::new(replies), tokio::io::sink());
        let mut session = match Session::over(Box::new(stream), &self.peer, deadline).await {
            Ok(session) => session,
            Err(delivered) => return *delivered,
        };
        let envelope = self.envelope(&ready, &content);
        if let Err(outcome) = envelope.fits(session.extensions()) {
            return Delivered::decided(outcome, None);
        }
        let last_reply = self.limit.of(content.len()) / 2;
        let mut before_end = |_: Option<&Delivered>| ();
        let sent = session.send(&self.peer, &envelope, last_reply, &mut before_end);
        match sent.await {
            Ok(delivered) => delivered,
            Err(stale) => stale.unreached(),
        }
    }
}
