//! Sends messages through an SMTP relay (RFC 5321).
//!
//! Connections follow the rules of the HTTP client: the name is looked up here, each address is checked against the
//! allowed networks, and the checked address itself is dialled. Unencrypted connections are for listed private addresses,
//! with credentials for loopback addresses. Connections are kept and reused. If a connection is lost before the final dot,
//! the message was not sent; after it, the message may have been accepted. Knows nothing of PostgreSQL.
//!
//! | module | owns |
//! |---|---|
//! | `dial` | look-up, connection, TLS handshake |
//! | `wire` | writing commands and reading replies before a deadline |
//! | `reply` | parsing replies (pure) |
//! | `session` | greeting, EHLO, STARTTLS |
//! | `login` | AUTH |
//! | `envelope` | MAIL and RCPT commands (pure) |
//! | `transaction` | one transaction: MAIL, RCPT, DATA |
//! | `further` | one message: a transaction, and further ones to recipients that are too many for it |
//! | `outcome` | what a reply means for a message (pure) |
//! | `pool` | kept connections, and their maximum number |

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use zeroize::Zeroizing;

use super::delivered::{Delivered, Tell};
use super::invalid::Invalid;
use super::mime;
use super::network_policy::{AllowedNetworks, Exposed, Server};
use super::providers::MessageOutcome;
use super::providers::mailbox::{self, Mailbox, Ready};
use super::resolver::Resolver;
use super::time_limit::TimeLimit;
use crate::address;
use crate::message::Message;

mod command;
mod dial;
mod envelope;
mod extensions;
mod further;
#[cfg(fuzzing)]
mod fuzzed;
mod login;
mod outcome;
mod pool;
mod reply;
mod session;
#[cfg(test)]
pub(crate) mod tests;
mod transaction;
mod wire;

pub(crate) use outcome::names_mailbox;

use envelope::Envelope;
use extensions::Extensions;
use pool::Pool;
use session::Session;

/// Maximum recipients of one message: servers need not accept more (RFC 5321, section 4.5.3.1.8).
const RECIPIENTS_MAX: usize = 100;

/// The port of servers that expect TLS from the first byte (RFC 8314).
pub(super) const SUBMISSIONS_PORT: u16 = 465;

/// When TLS begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// After STARTTLS, which the server must offer.
    Starttls,
    /// At once.
    Implicit,
    /// Never. Allowed for private addresses within `networks`, with credentials only for loopback addresses.
    None,
}

/// Credentials. No `Debug`, because they are secret.
pub enum Login {
    /// No AUTH.
    None,
    /// AUTH PLAIN or LOGIN.
    Password {
        /// The user.
        username: String,
        /// The password.
        password: Zeroizing<String>,
    },
    /// AUTH XOAUTH2.
    Xoauth2 {
        /// The user.
        username: String,
        /// A file with the access token; the rules of [`crate::secret_file`] apply. It is read for each new connection, so
        /// a replaced token is used from the next connection on.
        token_file: PathBuf,
    },
}

impl Login {
    /// What a connection without TLS exposes.
    pub fn exposed(&self) -> Exposed {
        match self {
            Self::None => Exposed::Mail,
            Self::Password { .. } | Self::Xoauth2 { .. } => Exposed::Credentials,
        }
    }
}

/// The configuration of a relay.
pub struct Settings {
    /// A name, or an address.
    pub host: String,
    /// Usually 587 with STARTTLS, 465 with implicit TLS.
    pub port: u16,
    /// When TLS begins.
    pub tls: Tls,
    /// Credentials.
    pub login: Login,
    /// The sender, e.g. `Shop <shop@example.com>`. Bounces go to its address unless there is a `bounce_address`.
    pub from: String,
    /// The address that bounces go to, MAIL FROM; without one, that of the sender.
    pub bounce_address: Option<String>,
    /// The client's name in EHLO; if empty, the domain of `from`.
    pub helo: String,
    /// Networks that may be connected to although they are not public.
    pub networks: AllowedNetworks,
    /// The trusted certificate authorities, see [`super::tls::config`].
    pub tls_config: rustls::ClientConfig,
    /// For one message, including a connection if a new one is needed; a large one has more. There is half of it at least for
    /// the last reply, and for each further transaction.
    pub timeout: Duration,
    /// For look-up, connection and implicit TLS.
    pub connect_timeout: Duration,
    /// Maximum number of concurrent connections, at least 1. Further calls of [`Relay::send`] wait.
    pub connections: usize,
}

/// An SMTP relay. To be used within a tokio runtime.
pub struct Relay {
    pool: Arc<Pool>,
    peer: Peer,
    from: Mailbox,
    bounce_address: Option<String>,
    limit: TimeLimit,
    /// The extensions that the server offered in the latest connection.
    known: Mutex<Option<Extensions>>,
}

/// What is needed to open a session.
struct Peer {
    host: String,
    port: u16,
    tls: Tls,
    login: Login,
    helo: String,
    networks: AllowedNetworks,
    names: Resolver,
    config: Arc<rustls::ClientConfig>,
    connect_timeout: Duration,
}

impl Peer {
    /// What a connection exposes.
    fn exposed(&self) -> Exposed {
        match self.tls {
            Tls::Starttls | Tls::Implicit => Exposed::Nothing,
            Tls::None => self.login.exposed(),
        }
    }
}

impl Relay {
    /// A relay without a connection.
    ///
    /// # Errors
    /// Which setting is invalid.
    pub fn new(settings: Settings) -> Result<Self, Invalid> {
        let from = mailbox::sender(&settings.from)?;
        let bounce_address = match settings.bounce_address.as_deref() {
            None => None,
            Some(address) => Some(
                address::to_ascii(address)
                    .map_err(|why| Invalid::new("bounce_address", why.to_string()))?
                    .into_owned(),
            ),
        };
        let helo = Some(settings.helo).filter(|helo| !helo.is_empty());
        let helo = helo.unwrap_or_else(|| from.domain().to_owned());
        if !helo.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Invalid::new(
                "helo",
                "is not printable ASCII without spaces",
            ));
        }
        if settings.host.is_empty() {
            return Err(Invalid::missing("host"));
        }
        if dial::server_name(&settings.host).is_none() {
            return Err(Invalid::new("host", "is neither a name nor an address"));
        }
        let peer = Peer {
            host: settings.host,
            port: settings.port,
            tls: settings.tls,
            login: settings.login,
            helo,
            networks: settings.networks,
            names: Resolver::default(),
            config: Arc::new(settings.tls_config),
            connect_timeout: settings.connect_timeout,
        };
        let (networks, exposed) = (&peer.networks, peer.exposed());
        networks.judge_setting(&peer.host, exposed, Server::Relay)?;
        Ok(Self {
            pool: Arc::new(Pool::new(settings.connections, pool::IDLE)),
            peer,
            from,
            bounce_address,
            limit: TimeLimit::new(settings.timeout),
            known: Mutex::new(None),
        })
    }

    /// Checks whether the relay can carry this message. The server's limits are those of the latest connection; before the
    /// first connection they are unknown, and [`Relay::send`] checks them.
    ///
    /// # Errors
    /// Why it cannot; the reason quotes no part of the message.
    pub fn check(&self, message: &Message) -> Result<(), String> {
        let ready = Ready::new(message, RECIPIENTS_MAX)?;
        let content = mime::build(&self.from, &ready, SystemTime::UNIX_EPOCH)?;
        let Some(extensions) = *self.known() else {
            return Ok(());
        };
        match self.envelope(&ready, &content).fits(extensions) {
            Err(MessageOutcome::Unsendable { reason }) => Err(reason),
            // What is wrong with the account shows when the message is sent.
            _ => Ok(()),
        }
    }

    /// Sends one message. `now` becomes its `Date`.
    pub async fn send(&self, message: &Message, now: SystemTime) -> Delivered {
        self.send_telling(message, now, &mut |_| ()).await
    }

    /// As [`Relay::send`]. `before_end` is called before the final dot: if the returned future is dropped earlier, the
    /// message was not sent. It is called again with the result so far before a further transaction.
    pub async fn send_telling(
        &self,
        message: &Message,
        now: SystemTime,
        before_end: &mut Tell<'_>,
    ) -> Delivered {
        let ready = match Ready::new(message, RECIPIENTS_MAX) {
            Ok(ready) => ready,
            Err(reason) => return Delivered::unsendable(reason),
        };
        let content = match mime::build(&self.from, &ready, now) {
            Ok(content) => content,
            Err(reason) => return Delivered::unsendable(reason),
        };
        let envelope = self.envelope(&ready, &content);
        let _permit = self.pool.permit().await;
        let deadline = Instant::now() + self.limit.of(content.len());
        if let Some(mut session) = self.pool.take() {
            session.set_deadline(deadline);
            // If the server had closed it, a new connection replaces it, once.
            if let Ok(delivered) = self.send_over(session, &envelope, before_end).await {
                return delivered;
            }
        }
        let session = match Session::open(&self.peer, deadline).await {
            Ok(session) => session,
            Err(delivered) => return self.without_session(*delivered),
        };
        *self.known() = Some(session.extensions());
        match self.send_over(session, &envelope, before_end).await {
            Ok(delivered) => delivered,
            Err(stale) => stale.unreached(),
        }
    }

    /// A server that closes a connection before there is a session, and has no other one of this relay, is not there. Otherwise
    /// it may be one connection too many.
    fn without_session(&self, delivered: Delivered) -> Delivered {
        match delivered.outcome {
            MessageOutcome::NotSent { reason } if self.pool.is_single() => {
                Delivered::decided(MessageOutcome::NoConnection { reason }, None)
            }
            _ => delivered,
        }
    }

    /// Connects, agrees on TLS and authenticates, as for a message, and sends none. Returns when TLS began.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub async fn reach(&self) -> Result<Tls, String> {
        match Session::open(&self.peer, Instant::now() + self.limit.of(0)).await {
            Ok(session) => {
                self.pool.give_back(session);
                Ok(self.peer.tls)
            }
            Err(delivered) => Err(delivered.outcome.reason().to_owned()),
        }
    }

    /// Host, port, TLS and credentials.
    #[cfg(test)]
    pub(crate) fn peer(&self) -> (&str, u16, Tls, &Login) {
        let peer = &self.peer;
        (&peer.host, peer.port, peer.tls, &peer.login)
    }

    /// Whether it may be at this address.
    #[cfg(test)]
    pub(crate) fn judge(&self, address: &str) -> Result<(), super::network_policy::Denial> {
        let networks = &self.peer.networks;
        networks.judge(address.parse().unwrap(), self.peer.exposed())
    }

    /// Maximum number of connections, and the time for one message.
    #[cfg(test)]
    pub(crate) fn limits(&self) -> (usize, Duration) {
        (self.pool.free(), self.limit.of(0))
    }

    async fn send_over(
        &self,
        mut session: Session,
        envelope: &Envelope<'_>,
        before_end: &mut Tell<'_>,
    ) -> Result<Delivered, transaction::Stale> {
        if let Err(outcome) = envelope.fits(session.extensions()) {
            self.pool.give_back(session);
            return Ok(Delivered::decided(outcome, None));
        }
        let last_reply = self.limit.of(envelope.content.len()) / 2;
        let delivered = session
            .send(&self.peer, envelope, last_reply, before_end)
            .await?;
        self.pool.give_back(session);
        Ok(delivered)
    }

    fn envelope<'m>(&'m self, ready: &'m Ready<'m>, content: &'m [u8]) -> Envelope<'m> {
        let bounces = self.bounce_address.as_deref();
        Envelope::new(&self.from, bounces, ready, content)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Extensions>> {
        // The value behind the mutex is consistent even after a panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
