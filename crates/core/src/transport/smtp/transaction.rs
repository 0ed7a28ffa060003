//! One transaction over a session: MAIL, RCPT, DATA.

use std::time::Duration;

use tokio::time::Instant;

use super::envelope::Envelope;
use super::outcome::{self, Stage};
use super::reply::Reply;
use super::session::Session;
use super::wire::Broke;
use crate::transport::delivered::{Delivered, Refused};
use crate::transport::providers::MessageOutcome;

/// In this many attempts, the message is sent to no recipient while the server defers one of them (4yz), unless the
/// attempt is the last. Later attempts send it to the accepted recipients and report the deferred ones as refused. The
/// back-off between nine attempts adds up to some minutes, for which greylisting servers defer a recipient.
const PATIENCE: i32 = 9;
/// How long to wait for the reply of a server that interrupted the content.
const INTERRUPTION: Duration = Duration::from_secs(1);

/// The server had closed a kept connection before it accepted any part of the message.
pub(super) struct Stale(String);

impl Stale {
    /// The result if no other connection is tried.
    pub fn unreached(self) -> Delivered {
        Delivered::not_sent(self.0)
    }
}

/// The replies to a group of commands, and why some are missing.
struct Answers {
    replies: std::vec::IntoIter<Reply>,
    broke: Option<Broke>,
}

impl Answers {
    /// The next reply.
    ///
    /// # Errors
    /// When it is missing: the message was not sent.
    fn next(&mut self) -> Result<Reply, Box<Delivered>> {
        self.replies.next().ok_or_else(|| self.lost())
    }

    /// Takes the reply to RSET, the first command over a kept connection.
    ///
    /// # Errors
    /// When the connection cannot be used.
    fn reset(&mut self) -> Result<(), String> {
        match (self.replies.next(), &self.broke) {
            (Some(reply), _) if reply.is_done() => Ok(()),
            (Some(reply), _) => Err(reply.reason()),
            // There is no time for another connection either; the missing reply to MAIL ends the attempt.
            (None, Some(Broke::Late)) => Ok(()),
            (None, _) => Err(self.reason()),
        }
    }

    /// Why the server closes the connection instead of replying to the next command, if it says so.
    fn closing(&self) -> Option<String> {
        let next = self.replies.as_slice().first();
        next.filter(|reply| reply.is_closing()).map(Reply::reason)
    }

    fn lost(&self) -> Box<Delivered> {
        Box::new(Delivered::not_sent(format!(
            "before the mail was sent: {}",
            self.reason()
        )))
    }

    fn reason(&self) -> String {
        match &self.broke {
            Some(broke) => broke.reason(),
            None => "the server closed the connection".to_owned(),
        }
    }
}

impl Session {
    /// One transaction. `before_end` is called before the final dot: until then, the message was not sent. The reply to the
    /// final dot is waited for at least for `last_reply`. Also returns the recipients that were too many for it.
    ///
    /// # Errors
    /// When the connection was closed before the server accepted any part of the message.
    pub(super) async fn transact(
        &mut self,
        envelope: &Envelope<'_>,
        last_reply: Duration,
        before_end: &mut (dyn FnMut() + Send),
    ) -> Result<(Delivered, Vec<Refused>), Stale> {
        let mut commands = Vec::with_capacity(envelope.recipients.len() + 3);
        let is_kept = self.begun > 0;
        if is_kept {
            self.check_quiet().await?;
            commands.push("RSET\r\n".to_owned());
        }
        self.begun += 1;
        commands.push(envelope.mail(self.extensions));
        let recipients = envelope.recipients.iter();
        commands.extend(recipients.map(|address| envelope.rcpt(address, self.extensions)));
        // With several recipients the replies to RCPT decide whether DATA is sent: an accepted DATA cannot be cancelled.
        let has_data = self.extensions.pipelining && envelope.recipients.len() == 1;
        if has_data {
            commands.push("DATA\r\n".to_owned());
        }
        let mut answers = self.exchange(&commands).await;
        if is_kept && let Err(reason) = answers.reset() {
            self.is_usable = false;
            return Err(Stale(reason));
        }
        if is_kept && let Some(closing) = answers.closing() {
            return Err(Stale(closing));
        }
        let mut rest = Vec::new();
        let delivered = match self.begin(envelope, &mut answers, &mut rest) {
            Err(delivered) => {
                if has_data {
                    self.end_empty(&mut answers).await;
                }
                delivered
            }
            Ok(refused) => {
                if !has_data {
                    answers = self.exchange(&["DATA\r\n".to_owned()]).await;
                }
                let delivered = self
                    .finish(envelope, &mut answers, last_reply, before_end)
                    .await;
                with_refused(delivered, refused)
            }
        };
        Ok((*delivered, rest))
    }

    /// Checks that a kept connection is open and without a reply that no command of the next transaction asks for: all later
    /// replies would be taken for those before them.
    ///
    /// # Errors
    /// When it must not be used again.
    async fn check_quiet(&mut self) -> Result<(), Stale> {
        let reason = match self.wire.is_quiet().await {
            Ok(true) => return Ok(()),
            Ok(false) => "the server sent a reply to no command".to_owned(),
            Err(broke) => broke.reason(),
        };
        self.is_usable = false;
        Err(Stale(reason))
    }

    /// Sends commands, together if the server offers PIPELINING, and reads their replies up to a 421.
    async fn exchange(&mut self, commands: &[String]) -> Answers {
        let mut replies = Vec::with_capacity(commands.len());
        let at_once = if self.extensions.pipelining {
            commands.len()
        } else {
            1
        };
        let broke = self.exchange_into(&mut replies, commands, at_once).await;
        let broke = broke.err();
        self.is_usable &= broke.is_none() && !replies.iter().any(Reply::is_closing);
        Answers {
            replies: replies.into_iter(),
            broke,
        }
    }

    async fn exchange_into(
        &mut self,
        replies: &mut Vec<Reply>,
        commands: &[String],
        at_once: usize,
    ) -> Result<(), Broke> {
        for group in commands.chunks(at_once) {
            self.wire.write(group.concat().as_bytes()).await?;
            for command in group {
                let reply = self.wire.reply().await?;
                let (is_closing, is_done) = (reply.is_closing(), reply.is_done());
                replies.push(reply);
                // After a refused MAIL the server refuses every RCPT.
                if is_closing || at_once == 1 && !is_done && command.starts_with("MAIL") {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Judges the replies to MAIL and RCPT; returns the recipients that will not get the message, and adds those to `rest`
    /// that were too many for this transaction.
    ///
    /// # Errors
    /// The result, if the message is not to be sent.
    fn begin(
        &mut self,
        envelope: &Envelope<'_>,
        answers: &mut Answers,
        rest: &mut Vec<Refused>,
    ) -> Result<Vec<Refused>, Box<Delivered>> {
        let judged =
            |reply: &Reply, stage| Delivered::decided(outcome::of(reply, stage), Some(reply.code));
        let sender = answers.next()?;
        if !sender.is_done() {
            return Err(Box::new(judged(&sender, Stage::Sender)));
        }
        let mut is_accepted = false;
        let mut deferred = None;
        let mut refused = Vec::new();
        let mut refusals = Vec::new();
        for recipient in &envelope.recipients {
            let reply = answers.next()?;
            if reply.is_closing() {
                return Err(Box::new(judged(&reply, Stage::Recipient)));
            }
            if reply.is_done() {
                is_accepted = true;
                continue;
            }
            let one = Refused {
                recipient: (*recipient).to_owned(),
                code: reply.code,
                reason: reply.reason(),
                is_permanent: outcome::refuses_mailbox(&reply),
            };
            if outcome::is_one_too_many(&reply) && is_accepted {
                rest.push(one);
                continue;
            }
            refused.push(one);
            let delivered = judged(&reply, Stage::Recipient);
            if reply.is_final() {
                refusals.push(delivered);
            } else {
                deferred.get_or_insert(delivered);
            }
        }
        let is_for_none = !is_accepted;
        if let (true, Some(Delivered { outcome, .. })) = (is_accepted, &mut deferred) {
            // Others were accepted, so it is no sign of the transport.
            let reason = outcome.reason().to_owned();
            *outcome = MessageOutcome::RecipientDeferred { reason };
        }
        let waits = is_for_none || envelope.attempts < PATIENCE && !envelope.is_last_attempt;
        let decision = match deferred {
            Some(delivered) if waits => Some(delivered),
            _ if is_for_none => gravest(refusals),
            _ => None,
        };
        match decision {
            None => Ok(refused),
            Some(delivered) => Err(with_refused(Box::new(delivered), refused)),
        }
    }

    /// Ends a DATA command that was pipelined although no recipient was accepted. If the server replied 354 to it, the
    /// content is empty (RFC 2920, section 3.1).
    async fn end_empty(&mut self, answers: &mut Answers) {
        let waits = answers
            .replies
            .next_back()
            .is_some_and(|reply| reply.code == 354);
        if waits && self.is_usable {
            let ended = self.wire.write(b".\r\n").await.is_ok();
            self.is_usable = ended && self.wire.reply().await.is_ok();
        }
    }

    /// Sends the content after a 354 reply to DATA.
    async fn finish(
        &mut self,
        envelope: &Envelope<'_>,
        answers: &mut Answers,
        last_reply: Duration,
        before_end: &mut (dyn FnMut() + Send),
    ) -> Box<Delivered> {
        let stage = envelope.text_stage();
        let judged = |reply: &Reply| {
            Box::new(Delivered::decided(
                outcome::of(reply, stage),
                Some(reply.code),
            ))
        };
        match answers.next() {
            Ok(reply) if reply.code == 354 => {}
            Ok(reply) => {
                self.is_usable &= !reply.is_done();
                return judged(&reply);
            }
            Err(delivered) => return delivered,
        }
        // The connection can only be kept if the server replies to the complete content.
        self.is_usable = false;
        let written = self.wire.write(&double_dots(envelope.content)).await;
        let quiet = match written {
            // The process may have stood still for longer than its claim was valid.
            Ok(()) if self.wire.is_late() => Err(Broke::Late),
            Ok(()) => self.wire.is_quiet().await,
            Err(broke) => Err(broke),
        };
        if !matches!(quiet, Ok(true)) {
            // The server replied or closed the connection before the final dot, so it has not accepted the message.
            self.wire.set_deadline(Instant::now() + INTERRUPTION);
            return match (self.wire.reply().await, quiet) {
                (Ok(reply), _) if reply.is_temporary() || reply.is_final() => judged(&reply),
                (_, Err(broke)) | (Err(broke), _) => Box::new(Delivered::not_sent(format!(
                    "before the end of the mail: {}",
                    broke.reason()
                ))),
                (Ok(reply), _) => Box::new(Delivered::not_sent(format!(
                    "before the end of the mail: {}",
                    reply.reason()
                ))),
            };
        }
        before_end();
        // Without this reply the message may be sent twice, and a server may take its time (RFC 5321, section 4.5.3.2.6).
        self.wire.extend_deadline(Instant::now() + last_reply);
        let reply = match self.wire.write(b".\r\n").await {
            Ok(()) => self.wire.reply().await,
            Err(broke) => Err(broke),
        };
        match reply {
            Ok(reply) if reply.is_done() => {
                self.is_usable = true;
                let provider_id = reply.queue_id();
                Box::new(Delivered::decided(
                    MessageOutcome::Sent { provider_id },
                    Some(reply.code),
                ))
            }
            Ok(reply) if reply.is_temporary() || reply.is_final() => {
                self.is_usable = !reply.is_closing();
                judged(&reply)
            }
            Ok(reply) => Box::new(unknown(format!("{}: out of order", reply.reason()))),
            Err(broke) => Box::new(unknown(broke.reason())),
        }
    }
}

fn unknown(reason: String) -> Delivered {
    let reason = format!("after the end of the mail: {reason}");
    Delivered::decided(MessageOutcome::Ambiguous { reason }, None)
}

/// Adds the recipients that were refused. If the message was not sent, the next attempt asks the deferred ones again, so
/// they are left out.
fn with_refused(mut delivered: Box<Delivered>, mut refused: Vec<Refused>) -> Box<Delivered> {
    if !matches!(delivered.outcome, MessageOutcome::Sent { .. }) {
        refused.retain(|refused| refused.code / 100 == 5);
    }
    delivered.refused = refused;
    delivered
}

/// If all recipients were refused: the refusal that is most likely to concern other messages, too.
fn gravest(refusals: Vec<Delivered>) -> Option<Delivered> {
    let gravity = |delivered: &Delivered| match delivered.outcome {
        MessageOutcome::AccountRefused { .. } => 0,
        MessageOutcome::Refused { .. } => 1,
        _ => 2,
    };
    refusals.into_iter().min_by_key(gravity)
}

/// Doubles the dot at the start of a line (RFC 5321, section 4.5.2).
fn double_dots(content: &[u8]) -> Vec<u8> {
    let mut doubled = Vec::with_capacity(content.len() + content.len() / 64 + 2);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b".") {
            doubled.push(b'.');
        }
        doubled.extend_from_slice(line);
    }
    doubled
}
