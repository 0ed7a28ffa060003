//! Writes commands and reads replies before a deadline.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::reply::{Garbled, LINE_MAX, Partial, Reply};
use crate::transport::http::presentable;

/// Maximum bytes of one read.
const CHUNK: usize = 4096;

/// A connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Why a read or write failed.
#[derive(Debug)]
pub(super) enum Broke {
    /// The connection was closed or lost.
    Lost(io::Error),
    /// The deadline has passed.
    Late,
    /// The server sent something other than a reply.
    Garbled,
}

impl Broke {
    /// The reason as text.
    pub fn reason(&self) -> String {
        match self {
            Self::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "the server closed the connection".to_owned()
            }
            Self::Lost(error) => {
                format!(
                    "the connection was lost: {}",
                    presentable(&error.to_string())
                )
            }
            Self::Late => "timeout".to_owned(),
            Self::Garbled => "the server's reply is not SMTP".to_owned(),
        }
    }
}

impl From<io::Error> for Broke {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Garbled> for Broke {
    fn from(_: Garbled) -> Self {
        Self::Garbled
    }
}

/// A connection and the bytes read from it that are not part of a reply yet.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
    deadline: Instant,
}

impl Wire {
    pub fn new(stream: Box<dyn Stream>, deadline: Instant) -> Self {
        Self {
            stream,
            unread: Vec::new(),
            deadline,
        }
    }

    /// Sets the deadline of all further reads and writes.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Whether the deadline has passed: what need not wait succeeds nevertheless.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Sets the deadline unless it is later.
    pub fn extend_deadline(&mut self, deadline: Instant) {
        self.deadline = self.deadline.max(deadline);
    }

    /// The stream, to start TLS on it.
    ///
    /// # Errors
    /// When unencrypted bytes are left: an attacker may have injected them to be read as replies within TLS.
    pub fn into_stream(self) -> Result<Box<dyn Stream>, Broke> {
        if self.unread.is_empty() {
            Ok(self.stream)
        } else {
            Err(Broke::Garbled)
        }
    }

    /// Writes and flushes all bytes.
    ///
    /// # Errors
    /// Why it failed; some of the bytes may have been sent.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Broke> {
        let stream = &mut self.stream;
        within(self.deadline, async {
            stream.write_all(bytes).await?;
            stream.flush().await
        })
        .await
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn reply(&mut self) -> Result<Reply, Broke> {
        let mut partial = Partial::default();
        loop {
            let line = self.line().await?;
            if let Some(reply) = partial.add(&line)? {
                return Ok(reply);
            }
        }
    }

    /// Whether nothing has arrived since the last reply. Does not wait.
    ///
    /// # Errors
    /// When the server has closed the connection.
    pub async fn is_quiet(&mut self) -> Result<bool, Broke> {
        if !self.unread.is_empty() {
            return Ok(false);
        }
        let mut chunk = [0; CHUNK];
        // The runtime polls the socket's readiness only between tasks.
        tokio::task::yield_now().await;
        let look = tokio::time::timeout(Duration::ZERO, self.stream.read(&mut chunk));
        match look.await {
            Err(_) => Ok(true),
            Ok(read) => {
                let read = read?;
                self.unread.extend_from_slice(&chunk[..read]);
                if read == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                Ok(false)
            }
        }
    }

    /// Reads a line; returns it without its line end.
    async fn line(&mut self) -> Result<Vec<u8>, Broke> {
        let mut searched = 0;
        loop {
            let new = self.unread.get(searched..).unwrap_or_default();
            if let Some(at) = new.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=searched + at).collect();
                line.truncate(line.trim_ascii_end().len());
                return Ok(line);
            }
            searched = self.unread.len();
            if searched > LINE_MAX {
                return Err(Broke::Garbled);
            }
            let mut chunk = [0; CHUNK];
            let read = within(self.deadline, self.stream.read(&mut chunk)).await?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.unread.extend_from_slice(&chunk[..read]);
        }
    }

    /// Sends QUIT and closes the connection without waiting for the reply.
    pub async fn quit(mut self) {
        let _ = self.write(b"QUIT\r\n").await;
        let _ = within(self.deadline, self.stream.shutdown()).await;
    }
}

async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, Broke> {
    match tokio::time::timeout_at(deadline, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Broke::Late),
    }
}
