//! Requests over sockets whose server ends before it has read the whole request.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::*;

/// More than the buffers between client and server hold.
const LARGE: usize = 32 << 20;
/// Written to the socket at once.
const SMALL: usize = 32 << 10;

/// What a server does after it has read a number of bytes.
#[derive(Clone, Copy)]
enum Then {
    /// Closes the connection, which resets it if there is more to read.
    Close,
    /// Reads nothing more.
    Stall,
    /// Answers, and closes the connection.
    Answer(&'static str),
    /// Answers after this time.
    AnswerLate(&'static str, Duration),
}

async fn serve(listener: TcpListener, bytes: usize, then: Then) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut left = bytes;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let most = left.min(buffer.len());
        left -= stream.read(&mut buffer[..most]).await.unwrap();
    }
    match then {
        Then::Close => {}
        Then::Stall => std::future::pending().await,
        Then::Answer(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
        Then::AnswerLate(answer, after) => {
            tokio::time::sleep(after).await;
            // The client may have gone.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

/// The status of the response to a request with a body of this size, or the outcome.
fn post(size: usize, timeout: Duration, bytes: usize, then: Then) -> Result<u16, MessageOutcome> {
    let mut limit = TimeLimit::new(timeout);
    // The size does not lengthen the test.
    limit.bytes_a_second = usize::MAX;
    post_within(limit, size, bytes, then)
}

fn post_within(
    limit: TimeLimit,
    size: usize,
    bytes: usize,
    then: Then,
) -> Result<u16, MessageOutcome> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, bytes, then));
        let mut client = Client::new(ClientOptions::on_loopback(LONG));
        client.limit = limit;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let request = Request {
            uri: format!("http://{address}/").parse().unwrap(),
            headers,
            body: Bytes::from(vec![b'x'; size]),
        };
        let response = client.post(request, &mut |_| {}).await;
        server.abort();
        response.map(|response| response.status)
    })
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(500);

#[test]
fn a_large_request_that_the_socket_has_not_taken_was_not_sent() {
    for (timeout, then) in [(LONG, Then::Close), (SHORT, Then::Stall)] {
        let outcome = post(LARGE, timeout, 800, then).unwrap_err();
        assert!(
            matches!(outcome, MessageOutcome::NotSent { .. }),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_small_request_may_have_been_sent() {
    for (timeout, then) in [(LONG, Then::Close), (SHORT, Then::Stall)] {
        let outcome = post(SMALL, timeout, 800, then).unwrap_err();
        assert!(
            matches!(outcome, MessageOutcome::Ambiguous { .. }),
            "{outcome:?}"
        );
    }
}

#[test]
fn an_answer_counts_although_the_request_was_not_read() {
    const ANSWER: &str =
        "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    for size in [SMALL, LARGE] {
        assert_eq!(post(size, LONG, 800, Then::Answer(ANSWER)), Ok(413));
    }
}

#[test]
fn a_large_request_has_more_time() {
    const ANSWER: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    let late = Then::AnswerLate(ANSWER, Duration::from_secs(2));
    let larger = 1 << 20;
    for (size, is_in_time) in [(SMALL, false), (larger, true)] {
        let result = post_within(TimeLimit::new(SHORT), size, size, late);
        assert_eq!(result.is_ok(), is_in_time, "{result:?}");
    }
}

#[test]
fn a_large_request_arrives_whole() {
    const ANSWER: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(post(LARGE, LONG, LARGE, Then::Answer(ANSWER)), Ok(202));
}
