//! Opens sessions: greeting, EHLO, STARTTLS, AUTH.

use std::time::Duration;

use tokio::time::Instant;

use super::dial::{dial, encrypt};
use super::login::log_in;
use super::outcome::{self, Stage};
use super::reply::Reply;
use super::wire::{Broke, Wire};
use super::{Peer, Tls};
use crate::transport::delivered::{Delivered, DeliveryError};

/// Maximum messages over one connection; servers have similar limits.
const MESSAGES_MAX: u32 = 100;
/// For QUIT and closing.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The extensions that the server offers in its reply to EHLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub pipelining: bool,
    pub starttls: bool,
    pub eight_bit: bool,
    pub utf8: bool,
    pub dsn: bool,
    pub size: bool,
    /// Maximum bytes of a message, if SIZE has a limit.
    pub size_limit: Option<usize>,
    pub plain: bool,
    pub login: bool,
    pub xoauth2: bool,
}

/// A connection that is ready for a message.
pub(super) struct Session {
    pub(super) wire: Wire,
    pub(super) extensions: Extensions,
    /// Number of messages so far, failed ones included.
    pub(super) begun: u32,
    /// Whether the connection is in a known state and open.
    pub(super) is_usable: bool,
}

/// The result of a message whose session could not be opened. Boxed because it is large and rare.
pub(super) type Stopped = Box<Delivered>;

impl Session {
    /// Connects, starts TLS and authenticates.
    ///
    /// # Errors
    /// The result of the message.
    pub async fn open(peer: &Peer, deadline: Instant) -> Result<Self, Stopped> {
        let stream = dial(peer, deadline).await.map_err(stopped)?;
        let mut wire = Wire::new(stream, deadline);
        let greeting = reply(&mut wire).await?;
        if greeting.code != 220 {
            return Err(judged(&greeting, Stage::Hello));
        }
        let mut extensions = ehlo(peer, &mut wire).await?;
        if peer.tls == Tls::Starttls {
            if !extensions.starttls {
                let reason = "the server does not offer STARTTLS: nothing was sent in clear";
                return Err(Box::new(Delivered::account_refused(reason)));
            }
            let answer = ask(&mut wire, "STARTTLS\r\n").await?;
            if answer.code != 220 {
                return Err(judged(&answer, Stage::Tls));
            }
            let stream = wire.into_stream().map_err(|broke| lost(&broke))?;
            let encrypted = tokio::time::timeout_at(deadline, encrypt(peer, stream)).await;
            let stream = encrypted
                .map_err(|_| lost(&Broke::Late))?
                .map_err(stopped)?;
            wire = Wire::new(stream, deadline);
            // The first reply was not encrypted, so it could be forged (RFC 3207, section 4.2).
            extensions = ehlo(peer, &mut wire).await?;
        }
        log_in(&peer.login, &mut wire, extensions).await?;
        Ok(Self {
            wire,
            extensions,
            begun: 0,
            is_usable: true,
        })
    }

    /// The extensions that the server offers.
    pub fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Sets the deadline of all further reads and writes.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.wire.set_deadline(deadline);
    }

    /// Whether another message may be sent over this connection.
    pub fn is_usable(&self) -> bool {
        self.is_usable && self.begun < MESSAGES_MAX
    }

    /// Closes the connection, with QUIT if it is usable.
    pub async fn quit(mut self) {
        if self.is_usable {
            self.wire.set_deadline(Instant::now() + QUIT_TIMEOUT);
            self.wire.quit().await;
        }
    }
}

/// Sends a command and waits for its reply.
///
/// # Errors
/// When there is no reply.
pub(super) async fn ask(wire: &mut Wire, command: &str) -> Result<Reply, Stopped> {
    wire.write(command.as_bytes())
        .await
        .map_err(|broke| lost(&broke))?;
    reply(wire).await
}

/// The result of a message whose session this reply ended.
pub(super) fn judged(reply: &Reply, stage: Stage) -> Stopped {
    Box::new(Delivered::decided(
        outcome::of(reply, stage),
        Some(reply.code),
    ))
}

async fn reply(wire: &mut Wire) -> Result<Reply, Stopped> {
    wire.reply().await.map_err(|broke| lost(&broke))
}

fn lost(broke: &Broke) -> Stopped {
    Box::new(Delivered::not_sent(format!(
        "no session: {}",
        broke.reason()
    )))
}

fn stopped(failure: DeliveryError) -> Stopped {
    Box::new(Delivered::failed(failure))
}

async fn ehlo(peer: &Peer, wire: &mut Wire) -> Result<Extensions, Stopped> {
    let answer = ask(wire, &format!("EHLO {}\r\n", peer.helo)).await?;
    if answer.code != 250 {
        return Err(judged(&answer, Stage::Hello));
    }
    Ok(Extensions::read(answer.lines()))
}

impl Extensions {
    /// Reads the lines of a reply to EHLO; the first line holds the server's name.
    fn read(lines: &[String]) -> Self {
        let mut known = Self::default();
        for line in lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            // Some servers send `AUTH=LOGIN` in addition to, or instead of, `AUTH LOGIN`.
            let mut words = line.split([' ', '=']).filter(|word| !word.is_empty());
            match words.next() {
                Some("PIPELINING") => known.pipelining = true,
                Some("STARTTLS") => known.starttls = true,
                Some("8BITMIME") => known.eight_bit = true,
                Some("SMTPUTF8") => known.utf8 = true,
                Some("DSN") => known.dsn = true,
                Some("SIZE") => {
                    known.size = true;
                    let limit = words.next().and_then(|limit| limit.parse().ok());
                    known.size_limit = limit.filter(|limit| *limit > 0);
                }
                Some("AUTH") => words.for_each(|mechanism| match mechanism {
                    "PLAIN" => known.plain = true,
                    "LOGIN" => known.login = true,
                    "XOAUTH2" => known.xoauth2 = true,
                    _ => {}
                }),
                _ => {}
            }
        }
        known
    }
}
