//! Asks the counterparts what they received: HTTP/1.0 over loopback, where the end of the connection ends the response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Makes a request; returns the status and the body of the response.
pub fn call(port: u16, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    call_with(port, method, path, "", body)
}

/// As [`call`], with additional headers.
pub fn call_with(
    port: u16,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&Value>,
) -> (u16, String) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let headers = format!("Host: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{headers}");
    let (status, _, body) = exchange(port, method, path, &headers, &body);
    (status, body)
}

/// Makes a request with these headers; returns the status, the head and the body of the response.
pub fn exchange(
    port: u16,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// As [`call`], but fails unless the status is 2xx; returns the body as JSON, or `Null` if it is not JSON.
pub fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Value {
    let (status, answer) = call(port, method, path, body);
    assert!(
        (200..300).contains(&status),
        "{method} {path}: {status} {answer}"
    );
    serde_json::from_str(&answer).unwrap_or(Value::Null)
}
