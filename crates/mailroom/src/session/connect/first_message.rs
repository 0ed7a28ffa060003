//! What a server asks for before it lets a role in.
//!
//! The first message about authentication is read as it arrives, before the client answers. The client sends a password
//! only in answer to it, so what is refused here never gets one.
//!
//! Source: PostgreSQL, "Message Formats", `Authentication…`: the byte `R`, the length, and a code, both of four bytes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::conninfo::Target;
use crate::database_error::DatabaseError;
use crate::tls::Mode;

/// Size of the message up to its code.
const HEAD: usize = 9;
/// `AuthenticationOk`.
const NOTHING: u32 = 0;
/// `AuthenticationCleartextPassword`.
const CLEAR_TEXT: u32 = 3;

/// Why a server is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It asks for no password: `trust`, `peer`, `cert` or the like.
    NoPassword,
    /// It asks for the password in clear text, over a connection that others may read.
    ClearText,
}

/// Judges the first message of servers.
pub struct FirstMessage {
    is_verified: bool,
    refused: Arc<OnceLock<Refused>>,
}

impl FirstMessage {
    pub fn new(target: &Target) -> Self {
        Self {
            is_verified: matches!(target.tls.mode, Mode::VerifyCa | Mode::VerifyFull),
            refused: Arc::default(),
        }
    }

    /// What was refused.
    pub fn refused(&self) -> Option<Refused> {
        self.refused.get().copied()
    }

    /// Watches connections with this TLS.
    pub fn watch<T>(&self, tls: T) -> Watching<T> {
        Watching {
            tls,
            judge: self.judge(self.is_verified),
        }
    }

    /// Connects without TLS. A socket of this machine is private; so is its loopback interface.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn dial(&self, config: &Config) -> Result<Watched<Plain>, DatabaseError> {
        let port = config.get_ports().first().copied().unwrap_or_default();
        let address = config.get_hostaddrs().first().copied();
        let opened = match (address, config.get_hosts().first()) {
            (Some(address), _) => {
                let opened = TcpStream::connect((address, port)).await;
                opened.map(|stream| (Plain::Tcp(stream), address.to_canonical().is_loopback()))
            }
            (None, Some(Host::Unix(folder))) => {
                let opened = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await;
                opened.map(|stream| (Plain::Unix(stream), true))
            }
            // A name was resolved before.
            (None, _) => return Err(DatabaseError::lost("the host has no address")),
        };
        let lost = |error| DatabaseError::lost(format!("error connecting to server: {error}"));
        let (stream, is_private) = opened.map_err(lost)?;
        Ok(Watched {
            stream,
            judge: Some(self.judge(is_private)),
        })
    }

    fn judge(&self, is_private: bool) -> Judge {
        Judge {
            head: Vec::with_capacity(HEAD),
            skipped: 0,
            is_private,
            refused: Arc::clone(&self.refused),
        }
    }
}

/// Judges the messages of one connection until the first one about authentication.
pub struct Judge {
    /// The beginning of the message that arrives.
    head: Vec<u8>,
    /// How many bytes of a message are left that does not matter: a notice.
    skipped: usize,
    is_private: bool,
    refused: Arc<OnceLock<Refused>>,
}

impl Judge {
    /// Takes bytes of the server; returns whether it has seen enough.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.skipped > 0 {
                let skipped = self.skipped.min(bytes.len());
                bytes = bytes.get(skipped..).unwrap_or_default();
                self.skipped -= skipped;
                continue;
            }
            let (first, rest) = bytes.split_at(1);
            self.head.extend(first);
            bytes = rest;
            match self.head[..] {
                [b'E', ..] => return Ok(true),
                [b'R', _, _, _, _, a, b, c, d] => {
                    return self.judge(u32::from_be_bytes([a, b, c, d])).map(|()| true);
                }
                [b'R', ..] => {}
                [_, a, b, c, d] => {
                    let size = usize::try_from(u32::from_be_bytes([a, b, c, d]));
                    // The size is among the bytes that it counts.
                    self.skipped = size.unwrap_or(usize::MAX).saturating_sub(4);
                    self.head.clear();
                }
                _ => {}
            }
        }
        Ok(false)
    }

    fn judge(&self, code: u32) -> io::Result<()> {
        let refused = match code {
            NOTHING => Refused::NoPassword,
            CLEAR_TEXT if !self.is_private => Refused::ClearText,
            _ => return Ok(()),
        };
        let _ = self.refused.set(refused);
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

/// A connection without TLS.
pub enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection whose first message is judged.
pub struct Watched<S> {
    stream: S,
    judge: Option<Judge>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        if let Some(judge) = &mut self.judge
            && judge.take(bytes)?
        {
            self.judge = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Watched<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

impl Plain {
    fn reading(&mut self) -> Pin<&mut (dyn AsyncRead + Unpin)> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            Self::Unix(stream) => Pin::new(stream),
        }
    }

    fn writing(&mut self) -> Pin<&mut (dyn AsyncWrite + Unpin)> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            Self::Unix(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reading().poll_read(context, buffer)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writing().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing().poll_shutdown(context)
    }
}

/// TLS whose connections are watched.
pub struct Watching<T> {
    tls: T,
    judge: Judge,
}

impl<S, T> MakeTlsConnect<S> for Watching<T>
where
    T: MakeTlsConnect<S>,
    <T::TlsConnect as TlsConnect<S>>::Future: Send + 'static,
    T::Stream: 'static,
{
    type Stream = Watched<T::Stream>;
    type TlsConnect = Watching<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, T::Error> {
        Ok(Watching {
            tls: self.tls.make_tls_connect(domain)?,
            judge: self.judge.again(),
        })
    }
}

impl<S, T> TlsConnect<S> for Watching<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
    T::Stream: 'static,
{
    type Stream = Watched<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let Self { tls, judge } = self;
        let connecting = tls.connect(stream);
        Box::pin(async move {
            Ok(Watched {
                stream: connecting.await?,
                judge: Some(judge),
            })
        })
    }
}

impl Judge {
    /// A judge of another connection.
    fn again(&self) -> Self {
        Self {
            head: Vec::with_capacity(HEAD),
            skipped: 0,
            is_private: self.is_private,
            refused: Arc::clone(&self.refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a first message that arrives in pieces of this size.
    fn outcome(message: &[u8], piece: usize, is_private: bool) -> (bool, Option<Refused>) {
        let first = FirstMessage {
            is_verified: false,
            refused: Arc::default(),
        };
        let mut judge = first.judge(is_private);
        let mut chunks = message.chunks(piece);
        let passed = chunks.all(|bytes| judge.take(bytes).is_ok());
        (passed, first.refused())
    }

    #[test]
    fn what_asks_for_no_password_is_refused_however_it_arrives() {
        let ok = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x10";
        let clear_text = b"R\0\0\0\x08\0\0\0\x03";
        let scram = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
        let error = b"E\0\0\0\x40SFATAL\0\0";
        for piece in [1, 4, 8, 9, 64] {
            for is_private in [true, false] {
                let refused = Some(Refused::NoPassword);
                assert_eq!(outcome(ok, piece, is_private), (false, refused));
                assert_eq!(outcome(scram, piece, is_private), (true, None));
                assert_eq!(outcome(error, piece, is_private), (true, None));
            }
            assert_eq!(outcome(clear_text, piece, true), (true, None));
            let refused = Some(Refused::ClearText);
            assert_eq!(outcome(clear_text, piece, false), (false, refused));
            // A pooler may send a notice first.
            let after_notice = [&b"N\0\0\0\x09hello"[..], ok].concat();
            let refused = Some(Refused::NoPassword);
            assert_eq!(outcome(&after_notice, piece, true), (false, refused));
        }
    }
}
