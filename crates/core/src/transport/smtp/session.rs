//! Opens sessions: greeting, EHLO or HELO, STARTTLS, AUTH.

use std::time::Duration;

use tokio::time::Instant;

use super::command::{Stopped, ask, lost, result_of};
use super::dial::{dial, encrypt};
use super::extensions::Extensions;
use super::login::log_in;
use super::outcome::Stage;
use super::wire::{Broke, Stream, Wire};
use super::{Login, Peer, SUBMISSIONS_PORT, Tls};
use crate::transport::delivered::Delivered;
use crate::transport::providers::MessageOutcome;

/// Maximum messages over one connection; servers have similar limits.
const MESSAGES_MAX: u32 = 100;
/// The replies of a server that does not know a command.
const UNKNOWN_COMMAND: [u16; 3] = [500, 502, 504];
/// For QUIT and closing.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that is ready for a message.
pub(super) struct Session {
    pub(super) wire: Wire,
    pub(super) extensions: Extensions,
    /// Number of messages so far, failed ones included.
    pub(super) begun: u32,
    /// Whether the connection is in a known state and open.
    pub(super) is_usable: bool,
}

impl Session {
    /// Connects, starts TLS and authenticates.
    ///
    /// # Errors
    /// The result of the message.
    pub async fn open(peer: &Peer, deadline: Instant) -> Result<Self, Stopped> {
        let stream = dial(peer, deadline).await.map_err(stopped)?;
        Self::over(stream, peer, deadline).await
    }

    /// The same over a connection that is there.
    pub(super) async fn over(
        stream: Box<dyn Stream>,
        peer: &Peer,
        deadline: Instant,
    ) -> Result<Self, Stopped> {
        let mut wire = Wire::new(stream, deadline);
        let greeting = wire.reply().await;
        let greeting = greeting.map_err(|broke| ungreeted(peer, &broke))?;
        if greeting.code != 220 {
            return Err(result_of(&greeting, Stage::Hello));
        }
        let mut extensions = hello(peer, &mut wire).await?;
        if peer.tls == Tls::Starttls {
            if !extensions.starttls {
                let reason = "the server does not offer STARTTLS, which tls asks for: nothing was sent in clear";
                return Err(Box::new(Delivered::account_refused(reason)));
            }
            let answer = ask(&mut wire, "STARTTLS\r\n").await?;
            if answer.code != 220 {
                return Err(result_of(&answer, Stage::Tls));
            }
            let stream = wire.into_stream().map_err(|broke| lost(&broke))?;
            let encrypted = tokio::time::timeout_at(deadline, encrypt(peer, stream)).await;
            let stream = encrypted
                .map_err(|_| lost(&Broke::Late))?
                .map_err(stopped)?;
            wire = Wire::new(stream, deadline);
            // The first reply was not encrypted, so it could be forged (RFC 3207, section 4.2).
            extensions = hello(peer, &mut wire).await?;
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

fn stopped(outcome: MessageOutcome) -> Stopped {
    Box::new(Delivered::decided(outcome, None))
}

/// The result if there is no greeting. A server that expects TLS from the first byte waits for it, or breaks off.
fn ungreeted(peer: &Peer, broke: &Broke) -> Stopped {
    let may_expect_tls = match broke {
        Broke::Late => peer.tls != Tls::Implicit,
        Broke::Lost(_) => peer.tls != Tls::Implicit && peer.port == SUBMISSIONS_PORT,
        Broke::Garbled => false,
    };
    if !may_expect_tls {
        return lost(broke);
    }
    Box::new(Delivered::not_sent(format!(
        "no session: no greeting: {}; if TLS begins at once on this port, write tls = \"implicit\"",
        broke.reason()
    )))
}

/// Says EHLO. A server that does not know it is told HELO (RFC 5321, section 3.2), which offers no extension, unless the
/// transport needs one.
async fn hello(peer: &Peer, wire: &mut Wire) -> Result<Extensions, Stopped> {
    let answer = ask(wire, &format!("EHLO {}\r\n", peer.helo)).await?;
    if answer.code == 250 {
        return Ok(Extensions::read(answer.lines()));
    }
    if !UNKNOWN_COMMAND.contains(&answer.code) {
        return Err(result_of(&answer, Stage::Hello));
    }
    if peer.tls == Tls::Starttls || !matches!(peer.login, Login::None) {
        let reason = format!(
            "{}: the server does not know EHLO, without which it has neither STARTTLS nor AUTH: see tls and username",
            answer.reason()
        );
        return Err(Box::new(Delivered::decided(
            MessageOutcome::AccountRefused { reason },
            Some(answer.code),
        )));
    }
    let answer = ask(wire, &format!("HELO {}\r\n", peer.helo)).await?;
    if answer.code != 250 {
        return Err(result_of(&answer, Stage::Hello));
    }
    Ok(Extensions::default())
}
