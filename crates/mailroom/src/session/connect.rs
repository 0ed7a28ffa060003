//! Connecting to the first host of a database that can be used.
//!
//! As libpq does: each address of each host has `connect_timeout` for the connection, TLS, authentication and the check
//! of `target_session_attrs`, so that a host that is silent keeps no other from its turn.

mod first_message;
#[cfg(test)]
mod tests;

use std::cell::LazyCell;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use mailroom_core::transport::tls::Fault;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::first_message::FirstMessage;
pub use self::first_message::Refused;
use super::ConnectionEvent;
use crate::conninfo::{self, Target};
use crate::database_error::DatabaseError;

/// A connection, and the task that sends and receives.
pub struct Connected {
    pub client: Client,
    pub events: UnboundedReceiver<ConnectionEvent>,
    pub connection: JoinHandle<()>,
}

/// The configuration of TLS, or which file is wrong.
type TlsConfig = Result<MakeRustlsConnect, String>;

/// Connects to the first host that can be used.
///
/// # Errors
/// Why none can be used.
pub async fn connect(target: &Target) -> Result<Connected, DatabaseError> {
    connect_to(target, None).await
}

/// The same for a user who has given a password: a server that asks for none is refused, since it lets any user in as
/// this role, and so is one that wants it in clear text over a connection that others may read.
///
/// # Errors
/// Why none can be used, and what was refused, if that is why.
pub async fn log_in(target: &Target) -> Result<Connected, (DatabaseError, Option<Refused>)> {
    let first = FirstMessage::new(target);
    let connected = connect_to(target, Some(&first)).await;
    connected.map_err(|failure| (failure, first.refused()))
}

async fn connect_to(
    target: &Target,
    first: Option<&FirstMessage>,
) -> Result<Connected, DatabaseError> {
    // The files are not read for a connection without TLS.
    let tls = LazyCell::new(|| target.tls.client_config().map(MakeRustlsConnect::new));
    let limit = target.connect_timeout();
    let mut hosts = target.hosts();
    if target.is_random() {
        shuffle(&mut hosts);
    }
    let mut failures = Vec::new();
    for host in hosts {
        let addresses = match within(limit, resolve(&host.config)).await {
            Ok(mut addresses) => {
                if target.is_random() {
                    shuffle(&mut addresses);
                }
                addresses
            }
            Err(failure) => {
                failures.push((host.label, failure));
                continue;
            }
        };
        let is_one = addresses.len() == 1;
        for config in addresses {
            match within(limit, attempt(&config, || (*tls).clone(), first)).await {
                Ok(connected) => return Ok(connected),
                Err(failure) => {
                    // As in libpq: a server that refuses the role is the one that is meant.
                    let is_refused = failure.refuses_role();
                    failures.push((name(&host, &config, is_one), failure));
                    if is_refused {
                        return Err(DatabaseError::of_attempts(failures));
                    }
                }
            }
        }
    }
    Err(DatabaseError::of_attempts(failures))
}

/// Runs a future with a time limit.
async fn within<R>(
    limit: Duration,
    work: impl Future<Output = Result<R, DatabaseError>>,
) -> Result<R, DatabaseError> {
    let silent = || {
        DatabaseError::lost(format!(
            "the server did not answer within {} s",
            limit.as_secs()
        ))
    };
    timeout(limit, work).await.unwrap_or_else(|_| Err(silent()))
}

fn shuffle<T>(all: &mut [T]) {
    all.sort_by_cached_key(|_| RandomState::new().hash_one(0));
}

/// The name of an address in messages.
fn name(host: &conninfo::Host, config: &Config, is_one: bool) -> String {
    match config.get_hostaddrs().first() {
        Some(address) if !is_one => format!("{} ({address})", host.label),
        _ => host.label.clone(),
    }
}

/// The configuration for each address of a host.
async fn resolve(config: &Config) -> Result<Vec<Config>, DatabaseError> {
    let (Some(Host::Tcp(name)), []) = (config.get_hosts().first(), config.get_hostaddrs()) else {
        return Ok(vec![config.clone()]);
    };
    let port = config.get_ports().first().copied().unwrap_or_default();
    let found = tokio::net::lookup_host((name.as_str(), port)).await;
    let found =
        found.map_err(|error| DatabaseError::lost(format!("the host has no address: {error}")))?;
    let with_address = |address: std::net::SocketAddr| {
        let mut config = config.clone();
        config.hostaddr(address.ip());
        config
    };
    Ok(found.map(with_address).collect())
}

/// Connects to one address; with `sslmode=prefer` without TLS if the first attempt fails because of TLS.
async fn attempt(
    config: &Config,
    tls: impl FnOnce() -> TlsConfig,
    first: Option<&FirstMessage>,
) -> Result<Connected, DatabaseError> {
    let mode = config.get_ssl_mode();
    if mode == SslMode::Disable {
        return open_without_tls(config, first).await;
    }
    let (with_tls, is_of_tls) = match tls() {
        Ok(tls) => match open_with_tls(config, tls, first).await {
            Ok(connected) => return Ok(connected),
            Err(error) => {
                let is_of_tls = is_of_tls(&error);
                let hint = hint(&error);
                (DatabaseError::from(error).or_hint(hint), is_of_tls)
            }
        },
        Err(problem) => (DatabaseError::lost(problem), true),
    };
    if mode != SslMode::Prefer || !is_of_tls {
        return Err(with_tls);
    }
    let mut config = config.clone();
    config.ssl_mode(SslMode::Disable);
    let opened = open_without_tls(&config, first).await;
    opened.map_err(|without| {
        if without.to_string() == with_tls.to_string() {
            return with_tls;
        }
        let failures = [("with TLS", with_tls), ("without TLS", without)];
        let failures = failures.map(|(name, failure)| (name.to_owned(), failure));
        DatabaseError::of_attempts(failures.into())
    })
}

/// Whether a connection without TLS may succeed: the handshake failed, or the server refuses the client's address with
/// TLS (`hostnossl` in pg_hba.conf).
fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    // The kind of the error is private.
    error
        .to_string()
        .starts_with("error performing TLS handshake")
        || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// The remedy if rustls refuses a certificate that libpq may accept.
fn hint(error: &tokio_postgres::Error) -> &'static str {
    match Fault::of(error) {
        Some(Fault::OtherName) => {
            "The host must be one of the subject alternative names of the server's certificate."
        }
        Some(Fault::OldVersion) => "The server needs a certificate of X.509 version 3.",
        Some(Fault::IsAuthority) => {
            "The server needs a certificate that an authority issued, not that of the authority."
        }
        _ => "",
    }
}

async fn open_with_tls(
    config: &Config,
    tls: MakeRustlsConnect,
    first: Option<&FirstMessage>,
) -> Result<Connected, tokio_postgres::Error> {
    let Some(first) = first else {
        return Ok(drive(config.connect(tls).await?));
    };
    // With `prefer`, the library would go on without TLS, and unwatched.
    let mut config = config.clone();
    config.ssl_mode(SslMode::Require);
    Ok(drive(config.connect(first.watch(tls)).await?))
}

async fn open_without_tls(
    config: &Config,
    first: Option<&FirstMessage>,
) -> Result<Connected, DatabaseError> {
    match first {
        None => Ok(drive(config.connect(NoTls).await?)),
        Some(first) => {
            let stream = first.dial(config).await?;
            Ok(drive(config.connect_raw(stream, NoTls).await?))
        }
    }
}

/// Leaves a connection to a task.
fn drive<S, T>((client, connection): (Client, Connection<S, T>)) -> Connected
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, events) = unbounded_channel();
    Connected {
        client,
        events,
        connection: tokio::spawn(receive(connection, sender)),
    }
}

/// Drives a connection, and forwards its events until it ends.
async fn receive<S, T>(mut connection: Connection<S, T>, events: UnboundedSender<ConnectionEvent>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let event = match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => ConnectionEvent::Notified(
                notification.channel().to_owned(),
                notification.payload().to_owned(),
            ),
            Some(Ok(_)) => continue,
            Some(Err(error)) => {
                // Statements in flight get an error when the connection is dropped, on return.
                let _ = events.send(ConnectionEvent::Ended(
                    DatabaseError::from(error).to_string(),
                ));
                return;
            }
            None => return,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}
