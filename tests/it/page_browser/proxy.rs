//! A proxy before the page, which takes away what keeps hostile mail in, and a tracker, which counts what gets out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A layer that keeps hostile mail in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The frame may do nothing: an attribute of the frame, and a directive of the mail.
    Sandbox,
    /// The mail loads nothing.
    MailPolicy,
    /// The frame goes nowhere.
    FrameSource,
}

/// Starts the proxy; returns where it listens.
pub fn without(layer: Layer, page: SocketAddr) -> SocketAddr {
    listen(move |browser| drop(relay(layer, browser, page)))
}

/// Answers every request, and notes it.
pub struct Tracker {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tracker {
    pub fn start() -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        let address = listen(move |mut stream| {
            let Ok(Some((head, _))) = read(&mut stream) else {
                return;
            };
            let line = head.lines().next().unwrap_or_default().to_owned();
            notes.lock().unwrap().push(line);
            let answer = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/html\r\n\
                 Content-Length: 2\r\nConnection: close\r\n\r\nok";
            let _ = stream.write_all(answer.as_bytes());
        });
        Self { address, asked }
    }

    /// The request lines so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Serves each connection in a thread of its own, which ends with the test.
fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A browser may connect ahead, and send nothing.
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads a message's head and body; `None` if there is none.
fn read(stream: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line)? {
            0 if head.is_empty() => return Ok(None),
            0..=2 => break,
            _ => head.push_str(&line),
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok()).flatten()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some((head, body)))
}

fn relay(layer: Layer, mut browser: TcpStream, page: SocketAddr) -> std::io::Result<()> {
    let own = browser.local_addr()?.to_string();
    let Some((head, body)) = read(&mut browser)? else {
        return Ok(());
    };
    let mut to = TcpStream::connect(page)?;
    let head = head.replace(&own, &page.to_string());
    let head = without_line(&head, "connection:");
    to.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    to.write_all(&body)?;
    let Some((head, body)) = read(&mut to)? else {
        return Ok(());
    };
    let is_mail = head.contains("frame-ancestors 'self'");
    let mut head = without_line(&head, "connection:");
    let mut body = body;
    match layer {
        Layer::Sandbox => {
            head = head.replace("; sandbox", "");
            if head.contains("text/html") && !is_mail {
                let text = String::from_utf8_lossy(&body).replace(" sandbox=\"\"", "");
                body = text.into_bytes();
            }
        }
        Layer::MailPolicy if is_mail => head = without_line(&head, "content-security-policy:"),
        Layer::MailPolicy => {}
        Layer::FrameSource => head = head.replace("frame-src 'self'", "frame-src *"),
    }
    let head = without_line(&head, "content-length:");
    let length = body.len();
    browser.write_all(
        format!("{head}Connection: close\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
    )?;
    browser.write_all(&body)
}

/// A head without the lines that begin so.
fn without_line(head: &str, name: &str) -> String {
    let lines = head.lines();
    let kept = lines.filter(|line| !line.to_ascii_lowercase().starts_with(name));
    kept.map(|line| format!("{line}\r\n")).collect()
}
