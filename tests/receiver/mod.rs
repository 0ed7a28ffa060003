//! A receiver of webhooks that can misbehave in ways in which no real server can be made to, and records what it
//! accepted.
//!
//! One thread per connection, on loopback. What real servers can do is tested with real ones elsewhere.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// By names in lower case.
    pub headers: HashMap<String, String>,
    pub body: String,
    pub at: Instant,
    /// The number of requests with this `webhook-id` so far, this one included.
    pub attempt: usize,
}

impl Request {
    /// The `webhook-id`.
    pub fn message_id(&self) -> &str {
        self.headers.get("webhook-id").map_or("", String::as_str)
    }

    /// Whether the body contains this text.
    pub fn says(&self, text: &str) -> bool {
        self.body.contains(text)
    }
}

/// The response to a request. A request that is answered with 2xx counts as accepted.
pub enum Reaction {
    /// Status, headers (each ending in CR LF) and body.
    Answer(u16, String, String),
    /// This status, after a delay.
    Late(Duration, u16),
    /// Exactly these bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, until the client closes the connection.
    Hang,
    /// Exactly these bytes, then nothing until the client closes the connection.
    Stall(Vec<u8>),
    /// Status 202, and a body that continues as long as the client reads it.
    Endless,
    /// The end of the connection.
    Close,
}

/// A response without headers and body.
pub fn status(status: u16) -> Reaction {
    Reaction::Answer(status, String::new(), String::new())
}

/// A running receiver; dropping it ends it and all its connections.
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

type React = Box<dyn Fn(&Request) -> Reaction + Send + Sync>;

struct Shared {
    react: Mutex<Arc<React>>,
    accepted: Mutex<Vec<String>>,
    attempts: Mutex<HashMap<String, usize>>,
    requests: AtomicUsize,
    /// Requests read and not answered yet, and their maximum.
    open: AtomicUsize,
    peak: AtomicUsize,
    connections: AtomicUsize,
    /// Bytes of endless bodies that were written.
    endless: AtomicUsize,
    stopped: AtomicBool,
}

impl Receiver {
    /// Starts one that responds as `react` says.
    pub fn start(react: impl Fn(&Request) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            react: Mutex::new(Arc::new(Box::new(react))),
            accepted: Mutex::default(),
            attempts: Mutex::default(),
            requests: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            endless: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if theirs.stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                theirs.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&theirs);
                std::thread::Builder::new()
                    .stack_size(128 * 1024)
                    .spawn(move || serve(stream, &shared))
                    .unwrap();
            }
        });
        Self { address, shared }
    }

    /// The URL for the key `endpoint`.
    pub fn endpoint(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Replaces the function that chooses the response.
    pub fn react(&self, react: impl Fn(&Request) -> Reaction + Send + Sync + 'static) {
        *self.shared.react.lock().unwrap() = Arc::new(Box::new(react));
    }

    /// The `webhook-id` of each request that was accepted, in order.
    pub fn accepted(&self) -> Vec<String> {
        self.shared.accepted.lock().unwrap().clone()
    }

    /// The number of accepted requests.
    pub fn count(&self) -> usize {
        self.shared.accepted.lock().unwrap().len()
    }

    /// The number of all requests.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The number of requests read and not answered yet.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The highest number of requests that were open at the same time.
    pub fn peak(&self) -> usize {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// Bytes of endless bodies that clients, or their kernels, have accepted.
    pub fn endless(&self) -> usize {
        self.shared.endless.load(Ordering::Relaxed)
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// The highest number by which these times, in seconds and in order, exceed what a rate allows within an interval that
/// includes its ends. For a rate limit with a burst, no interval exceeds it by more than the burst.
pub fn beyond(times: &[f64], rate: f64) -> f64 {
    let mut lowest = f64::INFINITY;
    let mut most = 0.0_f64;
    for (index, time) in times.iter().enumerate() {
        let level = index as f64 - rate * time;
        lowest = lowest.min(level);
        most = most.max(level - lowest + 1.0);
    }
    most
}

fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    while let Some(mut request) = read(&mut reader, shared) {
        shared.requests.fetch_add(1, Ordering::Relaxed);
        let open = shared.open.fetch_add(1, Ordering::Relaxed) + 1;
        shared.peak.fetch_max(open, Ordering::Relaxed);
        let id = request.message_id().to_owned();
        request.attempt = {
            let mut attempts = shared.attempts.lock().unwrap();
            let attempt = attempts.entry(id.clone()).or_default();
            *attempt += 1;
            *attempt
        };
        let react = Arc::clone(&shared.react.lock().unwrap());
        let goes_on = answer(react(&request), &id, &mut writer, &mut reader, shared);
        shared.open.fetch_sub(1, Ordering::Relaxed);
        if !goes_on {
            return;
        }
    }
}

/// Responds; returns whether the connection stays open.
fn answer(
    reaction: Reaction,
    id: &str,
    writer: &mut TcpStream,
    reader: &mut BufReader<TcpStream>,
    shared: &Shared,
) -> bool {
    let (status, headers, body) = match reaction {
        Reaction::Answer(status, headers, body) => (status, headers, body),
        Reaction::Late(pause, status) => {
            std::thread::sleep(pause);
            (status, String::new(), String::new())
        }
        Reaction::Raw(bytes) => {
            let _ = writer.write_all(&bytes);
            return false;
        }
        Reaction::Hang => {
            outwait(writer, reader, shared);
            return false;
        }
        Reaction::Stall(bytes) => {
            if writer.write_all(&bytes).is_ok() {
                outwait(writer, reader, shared);
            }
            return false;
        }
        Reaction::Endless => {
            shared.accepted.lock().unwrap().push(id.to_owned());
            let head = b"HTTP/1.1 202 X\r\ntransfer-encoding: chunked\r\n\r\n";
            let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
            let _ = writer.set_write_timeout(Some(Duration::from_millis(200)));
            if writer.write_all(head).is_err() {
                return false;
            }
            let mut rest: &[u8] = &chunk;
            while !shared.stopped.load(Ordering::Acquire) {
                match writer.write(rest) {
                    Ok(0) => break,
                    Ok(written) => {
                        shared.endless.fetch_add(written, Ordering::Relaxed);
                        rest = &rest[written..];
                        if rest.is_empty() {
                            rest = &chunk;
                        }
                    }
                    // The client does not read now.
                    Err(error) if is_timeout(&error) => {}
                    Err(_) => break,
                }
            }
            return false;
        }
        Reaction::Close => return false,
    };
    if (200..300).contains(&status) {
        shared.accepted.lock().unwrap().push(id.to_owned());
    }
    let answer = format!(
        "HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    writer.write_all(answer.as_bytes()).is_ok()
}

/// Stays silent until the client closes the connection. It checks once a second only, because many may hang.
fn outwait(writer: &TcpStream, reader: &mut BufReader<TcpStream>, shared: &Shared) {
    let _ = writer.set_read_timeout(Some(Duration::from_secs(1)));
    let mut byte = [0];
    while !shared.stopped.load(Ordering::Acquire) {
        match reader.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(_) => break,
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}

fn read(reader: &mut BufReader<TcpStream>, shared: &Shared) -> Option<Request> {
    let first = read_line(reader, shared)?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let line = read_line(reader, shared)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match reader.read(&mut body[filled..]) {
            Ok(0) => return None,
            Ok(read) => filled += read,
            Err(error) if is_timeout(&error) && !shared.stopped.load(Ordering::Acquire) => {}
            Err(_) => return None,
        }
    }
    Some(Request {
        path,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
        at: Instant::now(),
        attempt: 0,
    })
}

/// Reads a line, however long it takes to arrive.
fn read_line(reader: &mut BufReader<TcpStream>, shared: &Shared) -> Option<String> {
    let mut line = Vec::new();
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => return String::from_utf8(line).ok(),
            Err(error) if is_timeout(&error) && !shared.stopped.load(Ordering::Acquire) => {}
            Err(_) => return None,
        }
    }
}
