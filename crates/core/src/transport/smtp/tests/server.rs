//! A scripted SMTP server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::super::wire::Stream;

/// A self-signed certificate for `localhost`, and its key.
pub const PEM: &[u8] = include_bytes!("localhost.pem");
/// A reply that stands for closing the connection.
pub const CLOSE: &str = "close";

/// The certificate in these bytes.
pub fn certificate(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).unwrap()
}

/// Maps the number of the connection, the number of the message in it (both from 1) and a command to a reply.
pub type Says = fn(usize, usize, &str) -> Option<&'static str>;

/// The behaviour of the server.
#[derive(Clone)]
pub struct Script {
    /// The extensions in the reply to EHLO.
    pub extensions: Vec<&'static str>,
    /// The reply to a command instead of the usual one, or [`CLOSE`]. Also called with `connect`, `text` (before the
    /// content is read) and `.` (after it).
    pub says: Says,
    /// Implicit TLS.
    pub is_encrypted: bool,
    /// Its certificate and key.
    pub pem: &'static [u8],
    /// Holds all replies to a transaction back until DATA.
    pub wants_pipelining: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            extensions: vec![
                "PIPELINING",
                "SIZE 1000000",
                "8BITMIME",
                "ENHANCEDSTATUSCODES",
            ],
            says: |_, _, _| None,
            is_encrypted: false,
            pem: PEM,
            wants_pipelining: false,
        }
    }
}

/// The connections and commands that the server has seen.
#[derive(Default)]
pub struct Seen {
    /// Connections so far.
    pub connections: AtomicUsize,
    /// Number of open connections.
    pub open: AtomicUsize,
    /// All commands.
    pub commands: Mutex<Vec<String>>,
    /// The contents that ended with a dot.
    pub mails: Mutex<Vec<Vec<u8>>>,
}

impl Seen {
    /// The commands that begin so.
    pub fn commands(&self, begin: &str) -> Vec<String> {
        let commands = self.commands.lock().unwrap();
        let found = commands.iter().filter(|line| line.starts_with(begin));
        found.cloned().collect()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn mails(&self) -> usize {
        self.mails.lock().unwrap().len()
    }

    /// Waits for a condition.
    pub async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never came to that");
    }
}

/// Starts the server; returns its port.
pub async fn start(script: Script) -> (u16, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
            let (script, seen) = (script.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                seen.open.fetch_add(1, Ordering::SeqCst);
                serve(stream, &script, number, &seen).await;
                seen.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (port, seen)
}

fn acceptor(pem: &[u8]) -> TlsAcceptor {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate(pem)],
            PrivateKeyDer::from_pem_slice(pem).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

struct Lines {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
    /// Replies held back.
    held: Vec<u8>,
}

impl Lines {
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let mut line: Vec<u8> = self.unread.drain(..at + 2).collect();
                line.truncate(at);
                return Some(line);
            }
            let mut chunk = vec![0; 65536];
            match self.stream.read(&mut chunk).await {
                Ok(read) if read > 0 => self.unread.extend_from_slice(&chunk[..read]),
                _ => return None,
            }
        }
    }

    async fn say(&mut self, text: &str) -> Option<()> {
        self.held
            .extend_from_slice(format!("{text}\r\n").as_bytes());
        self.flush().await
    }

    async fn flush(&mut self) -> Option<()> {
        let held = std::mem::take(&mut self.held);
        self.stream.write_all(&held).await.ok()?;
        self.stream.flush().await.ok()
    }
}

async fn serve(stream: TcpStream, script: &Script, number: usize, seen: &Seen) -> Option<()> {
    let stream: Box<dyn Stream> = if script.is_encrypted {
        Box::new(acceptor(script.pem).accept(stream).await.ok()?)
    } else {
        Box::new(stream)
    };
    let mut lines = Lines {
        stream,
        unread: Vec::new(),
        held: Vec::new(),
    };
    let mut mail = 0;
    let told = |mail, line: &str| (script.says)(number, mail, line);
    let greeting = told(mail, "connect").unwrap_or("220 test");
    if greeting == CLOSE {
        return None;
    }
    lines.say(greeting).await?;
    loop {
        let line = String::from_utf8(lines.line().await?).unwrap();
        seen.commands.lock().unwrap().push(line.clone());
        let verb = line.split([' ', ':']).next().unwrap().to_ascii_uppercase();
        mail += usize::from(verb == "MAIL");
        if !script.extensions.contains(&"PIPELINING") && !lines.unread.is_empty() {
            return lines.say("503 one after the other").await;
        }
        let reply = told(mail, &line);
        if reply == Some(CLOSE) {
            return None;
        }
        let default = match verb.as_str() {
            "AUTH" if line == "AUTH LOGIN" => "334 VXNlcm5hbWU6".to_owned(),
            // The user and the password of the tests.
            "C2HVCA==" => "334 UGFzc3dvcmQ6".to_owned(),
            "AHVUDGVYMG==" => "235 2.7.0 welcome".to_owned(),
            "EHLO" => std::iter::once(&"test")
                .chain(&script.extensions)
                .enumerate()
                .map(|(at, line)| {
                    let end = if at == script.extensions.len() {
                        ' '
                    } else {
                        '-'
                    };
                    format!("250{end}{line}")
                })
                .collect::<Vec<_>>()
                .join("\r\n"),
            "STARTTLS" => "220 go".to_owned(),
            "AUTH" => "235 2.7.0 welcome".to_owned(),
            "DATA" => "354 go".to_owned(),
            "QUIT" => "221 bye".to_owned(),
            _ => "250 2.0.0 ok".to_owned(),
        };
        let reply = reply.map_or(default, str::to_owned);
        if script.wants_pipelining && ["RSET", "MAIL", "RCPT"].contains(&verb.as_str()) {
            lines
                .held
                .extend_from_slice(format!("{reply}\r\n").as_bytes());
            continue;
        }
        lines.say(&reply).await?;
        match verb.as_str() {
            "STARTTLS" if reply.starts_with("220") => {
                assert!(lines.unread.is_empty());
                lines.stream = Box::new(acceptor(script.pem).accept(lines.stream).await.ok()?);
            }
            "DATA" if reply.starts_with("354") => {
                match told(mail, "text") {
                    Some(CLOSE) => return None,
                    Some(words) => return lines.say(words).await,
                    None => {}
                }
                let mut text = Vec::new();
                loop {
                    let line = lines.line().await?;
                    if line == b"." {
                        break;
                    }
                    text.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
                    text.extend_from_slice(b"\r\n");
                }
                seen.mails.lock().unwrap().push(text);
                match told(mail, ".").unwrap_or("250 2.0.0 Ok: queued as 4F1B2C") {
                    CLOSE => return None,
                    reply => lines.say(reply).await?,
                }
            }
            _ if verb == "QUIT" || reply.starts_with("421") => return None,
            _ => {}
        }
    }
}
