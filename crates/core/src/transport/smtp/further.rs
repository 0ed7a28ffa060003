//! Sends one message over a session, in further transactions to recipients that are too many for one.

use std::time::Duration;

use tokio::time::Instant;

use super::Peer;
use super::envelope::Envelope;
use super::session::Session;
use super::transaction::Stale;
use crate::transport::delivered::{Delivered, Refused, Tell};
use crate::transport::providers::MessageOutcome;

/// No further transaction begins after this many times `last_reply`.
const LONGEST: u32 = 4;

impl Session {
    /// Sends one message; see [`Session::transact`].
    ///
    /// Recipients that are too many for one transaction get the message in further ones (RFC 5321, section 4.5.3.1.10),
    /// each with `last_reply` of time at least. If the server ends the connection instead, another one replaces it, once. If
    /// a further transaction fails, its recipients count as refused, because the others have the message.
    ///
    /// `tell` is called before the final dot, and with the result so far before each further transaction.
    ///
    /// # Errors
    /// When the connection was closed before the server accepted any part of the message.
    pub async fn send(
        &mut self,
        peer: &Peer,
        envelope: &Envelope<'_>,
        last_reply: Duration,
        tell: &mut Tell<'_>,
    ) -> Result<Delivered, Stale> {
        let end = Instant::now() + LONGEST * last_reply;
        let mut before_end = || tell(None);
        let first = self.transact(envelope, last_reply, &mut before_end);
        let (mut delivered, mut rest) = first.await?;
        let mut may_reopen = true;
        while !rest.is_empty() && is_sent(&delivered) {
            let mut so_far = delivered.clone();
            so_far.refused.extend(rest.iter().cloned());
            if Instant::now() >= end {
                return Ok(so_far);
            }
            tell(Some(&so_far));
            let others = envelope.to(rest.iter().map(|one| one.recipient.as_str()));
            self.wire.extend_deadline(Instant::now() + last_reply);
            let further = self.transact(&others, last_reply, &mut || ()).await;
            let (further, left) = further.unwrap_or_else(|stale| (stale.unreached(), Vec::new()));
            let has_ended = !self.is_usable && may_be_repeated(&further);
            if has_ended && std::mem::take(&mut may_reopen) {
                let opened = Session::open(peer, Instant::now() + last_reply).await;
                if let Ok(session) = opened
                    && envelope.fits(session.extensions()).is_ok()
                {
                    *self = session;
                    continue;
                }
            }
            if !is_sent(&further) {
                let failed = rest.into_iter().map(|one| unsent(one, &further));
                delivered.refused.extend(failed);
                break;
            }
            delivered.refused.extend(further.refused);
            rest = left;
        }
        Ok(delivered)
    }
}

fn is_sent(delivered: &Delivered) -> bool {
    matches!(delivered.outcome, MessageOutcome::Sent { .. })
}

/// Whether the server surely has not accepted the message, and may accept it over another connection.
fn may_be_repeated(delivered: &Delivered) -> bool {
    matches!(
        delivered.outcome,
        MessageOutcome::NotSent { .. }
            | MessageOutcome::Retry { .. }
            | MessageOutcome::Throttled { .. }
    )
}

/// A recipient of a further transaction that failed, with the reason.
fn unsent(one: Refused, further: &Delivered) -> Refused {
    let mut refused = further.refused.iter();
    if let Some(own) = refused.find(|refused| refused.recipient == one.recipient) {
        return own.clone();
    }
    let reason = further.outcome.reason();
    match further.status {
        Some(code) => Refused {
            code,
            reason: reason.to_owned(),
            ..one
        },
        None => Refused {
            reason: format!("{}, then {reason}", one.reason),
            ..one
        },
    }
}
