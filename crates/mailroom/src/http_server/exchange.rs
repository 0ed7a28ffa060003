//! A request, and the answer to it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Maximum time until a request's body is there.
const BODY_TIME: Duration = Duration::from_secs(20);
/// How long a request waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(15);
/// After how many seconds a client tries again for which there was no turn.
const TURN_RETRY: HeaderValue = HeaderValue::from_static("10");

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// An answer of one line.
pub fn text(status: StatusCode, line: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(line.as_bytes())));
    *answer.status_mut() = status;
    with(
        answer,
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    )
}

/// An answer with this header too.
pub fn with(mut answer: Answer, name: HeaderName, value: HeaderValue) -> Answer {
    answer.headers_mut().insert(name, value);
    answer
}

/// The last answer of a connection.
fn last(answer: Answer) -> Answer {
    with(answer, CONNECTION, HeaderValue::from_static("close"))
}

/// Whether the length that a body has by its head is more than `limit` bytes.
fn is_too_large(least: u64, limit: usize) -> bool {
    usize::try_from(least).map_or(true, |least| least > limit)
}

/// A request whose head was read.
pub struct Exchange {
    head: Parts,
    body: Incoming,
    turns: Arc<Semaphore>,
}

/// A request that was read, and its turn, which ends when it is dropped.
pub struct Whole {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    _turn: OwnedSemaphorePermit,
}

impl Exchange {
    pub(super) fn new(request: Request<Incoming>, turns: Arc<Semaphore>) -> Self {
        let (head, body) = request.into_parts();
        Self { head, body, turns }
    }

    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// Waits for the turn of the request, and reads its body.
    ///
    /// # Errors
    /// The answer if the body has more than `limit` bytes, did not come in time, or was broken off, or if too many requests
    /// wait.
    pub async fn read(self, limit: usize) -> Result<Whole, Answer> {
        let too_large = || last(text(StatusCode::PAYLOAD_TOO_LARGE, "too large\n"));
        // Before a client that asks whether to go on is told to.
        if is_too_large(self.body.size_hint().lower(), limit) {
            return Err(too_large());
        }
        let turn = timeout(TURN_TIME, Arc::clone(&self.turns).acquire_owned());
        let Ok(Ok(turn)) = turn.await else {
            let busy = text(StatusCode::SERVICE_UNAVAILABLE, "busy\n");
            return Err(last(with(busy, RETRY_AFTER, TURN_RETRY)));
        };
        match timeout(BODY_TIME, collect(self.body, limit)).await {
            Ok(Ok(Some(body))) => Ok(Whole {
                headers: self.head.headers,
                body,
                _turn: turn,
            }),
            Ok(Ok(None)) => Err(too_large()),
            Ok(Err(_)) => Err(last(text(StatusCode::BAD_REQUEST, "broken off\n"))),
            Err(_) => Err(last(text(StatusCode::REQUEST_TIMEOUT, "too slow\n"))),
        }
    }
}

/// Reads a body; `None` if it has more than `limit` bytes.
async fn collect(mut body: Incoming, limit: usize) -> Result<Option<Vec<u8>>, hyper::Error> {
    // The system gives memory for what is written only, so that a length alone takes none.
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    let mut read = Vec::with_capacity(expected.min(limit));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            if data.len() > limit - read.len() {
                return Ok(None);
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(Some(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_limit_is_too_large() {
        for (least, expected) in [(0, false), (7, false), (8, true), (u64::MAX, true)] {
            assert_eq!(is_too_large(least, 7), expected, "{least}");
        }
    }
}
