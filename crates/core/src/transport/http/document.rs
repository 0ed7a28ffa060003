//! One GET and the document that it returns.

use bytes::Bytes;
use hyper::Uri;
use hyper::header::{HeaderValue, USER_AGENT};
use tokio::time::{Instant, timeout_at};

use super::outgoing::Outgoing;
use super::{AGENT, Client, HttpResponse, denied};
use crate::transport::network_policy::Server;
use crate::transport::tls;

/// A response that was read.
pub struct Document {
    /// The status code. A redirect is not followed.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Client {
    /// Gets a document of at most `limit` bytes, within the time for a request.
    ///
    /// # Errors
    /// Why there is none, in one line without the URL.
    pub async fn get(&self, uri: Uri, limit: usize) -> Result<Document, String> {
        let deadline = Instant::now() + self.limit.of(0);
        let mut asked = hyper::Request::new(Outgoing::of(Bytes::new()));
        *asked.uri_mut() = uri;
        asked
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let response = match timeout_at(deadline, self.inner.request(asked)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Err(
                    denied(&error).unwrap_or_else(|| tls::failure(&error, Server::Endpoint))
                );
            }
            Err(_) => return Err("timeout".to_owned()),
        };
        let (head, body) = response.into_parts();
        let mut response = HttpResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            is_broken_off: false,
            deadline,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let body = response.read(limit.saturating_add(1), left).await;
        if response.is_broken_off() {
            return Err("the response ended before its end".to_owned());
        }
        if body.len() > limit {
            return Err(format!("the response has more than {limit} bytes"));
        }
        Ok(Document {
            status: response.status,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;
    use crate::transport::http::ClientOptions;

    const LIMIT: usize = 1000;

    /// What a client makes of this answer, after which the server closes the connection or, with `hangs`, does not; and
    /// what it asked.
    fn got(answer: &str, hangs: bool) -> (Result<(u16, Vec<u8>), String>, String) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let uri = format!("http://{}/a.pem?b=c", listener.local_addr().unwrap());
            let answer = answer.to_owned();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 4096];
                let length = stream.read(&mut asked).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                if hangs {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                        drop(stream);
                    });
                }
                String::from_utf8_lossy(&asked[..length]).into_owned()
            });
            let client = Client::new(ClientOptions::on_loopback(Duration::from_millis(1500)));
            let document = client.get(uri.parse().unwrap(), LIMIT).await;
            let document = document.map(|document| (document.status, document.body));
            (document, server.await.unwrap())
        })
    }

    #[test]
    fn a_document_is_returned_with_its_status() {
        let (document, asked) = got("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody", true);
        assert_eq!(document, Ok((200, b"body".to_vec())));
        assert!(asked.starts_with("GET /a.pem?b=c HTTP/1.1\r\n"), "{asked}");
        assert!(!asked.contains("content-length"), "{asked}");
        let moved =
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(got(moved, false).0, Ok((302, vec![])));
    }

    #[test]
    fn a_document_that_is_large_slow_or_broken_is_none() {
        let long = |length: usize| {
            let body = "x".repeat(length);
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
        };
        assert!(got(&long(LIMIT), false).0.is_ok());
        let (large, _) = got(&long(LIMIT + 1), false);
        assert_eq!(large.unwrap_err(), "the response has more than 1000 bytes");
        let part = "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\nbody";
        for hangs in [false, true] {
            assert!(got(part, hangs).0.is_err());
        }
        assert_eq!(got("", true).0.unwrap_err(), "timeout");
    }
}
