//! Requests by hand, so that a test decides what is sent when.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Beyond the limits of the program.
const PATIENCE: Duration = Duration::from_secs(100);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_else(|| panic!("no answer: {text:?}")),
            head: head.to_owned(),
            body: body.trim().to_owned(),
        }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The head of a request, without the empty line at its end.
pub fn head(method: &str, path: &str, headers: &[&str]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head
}

/// Reads until the server closes the connection, which it does not reset.
pub fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    stream.read_to_end(&mut read).unwrap();
    String::from_utf8_lossy(&read).into_owned()
}

/// Sends a request over a connection of its own.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> Answer {
    let mut stream = connect(address);
    let mut head = head(method, path, headers);
    head.push_str(&format!(
        "Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    stream.write_all(head.as_bytes()).unwrap();
    // The server may answer before it has all of it.
    stream.write_all(body).unwrap();
    Answer::parse(&read_to_end(&mut stream))
}

/// What the server answers to these bytes.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    Answer::parse(&read_to_end(&mut stream))
}
