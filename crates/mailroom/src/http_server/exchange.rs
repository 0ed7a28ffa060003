//! A request, and the answer to it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum number of requests that are answered at a time.
const TURNS: usize = 16;
/// Maximum number of large bodies that are held at a time. They have turns of their own, so that slow ones keep no small
/// request from its answer.
const LARGE: usize = 16;
/// Above this number of bytes a body is large.
const SMALL_MAX: usize = 64 * 1024;
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

/// The last answer of a connection: what is left of the request is not read.
fn last(status: StatusCode, line: &'static str) -> Answer {
    let close = HeaderValue::from_static("close");
    with(text(status, line), CONNECTION, close)
}

fn too_large() -> Answer {
    last(StatusCode::PAYLOAD_TOO_LARGE, "too large\n")
}

fn too_slow() -> Answer {
    last(StatusCode::REQUEST_TIMEOUT, "too slow\n")
}

fn busy() -> Answer {
    let answer = last(StatusCode::SERVICE_UNAVAILABLE, "busy\n");
    with(answer, RETRY_AFTER, TURN_RETRY)
}

/// The turns of all requests of a server.
#[derive(Clone)]
pub struct Turns {
    all: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let new = |number| Arc::new(Semaphore::new(number));
        Self {
            all: new(TURNS),
            large: new(LARGE),
        }
    }
}

/// The turn of a request, which ends when it is dropped.
pub struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_large: Option<OwnedSemaphorePermit>,
}

/// Waits for a turn.
async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Answer> {
    match timeout(TURN_TIME, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(busy()),
    }
}

/// A request whose head was read.
pub struct Exchange {
    head: Parts,
    body: Incoming,
    peer: IpAddr,
    turns: Turns,
}

/// A request that was read.
pub struct Whole {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub turn: Turn,
}

impl Exchange {
    pub(super) fn new(request: Request<Incoming>, peer: IpAddr, turns: Turns) -> Self {
        let (head, body) = request.into_parts();
        Self {
            head,
            body,
            peer,
            turns,
        }
    }

    /// The address from which the connection was made.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The query, without its question mark; empty if there is none.
    pub fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// Reads the body, and waits for the turn of the request.
    ///
    /// # Errors
    /// The answer if the body has more than `limit` bytes, did not come in time, or was broken off, or if too many requests
    /// wait.
    pub async fn read(self, limit: usize) -> Result<Whole, Answer> {
        let least = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        // Before a client that asks whether to go on is told to.
        if least > limit {
            return Err(too_large());
        }
        let mut body = self.body;
        let mut read = Vec::with_capacity(least.min(SMALL_MAX));
        let mut large = None;
        let mut deadline = Instant::now() + BODY_TIME;
        loop {
            let frame = match timeout_at(deadline, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => return Err(last(StatusCode::BAD_REQUEST, "broken off\n")),
                Err(_) => return Err(too_slow()),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if data.len() > limit - read.len() {
                return Err(too_large());
            }
            if large.is_none() && read.len() + data.len() > SMALL_MAX {
                let begin = Instant::now();
                large = Some(turn(&self.turns.large).await?);
                deadline += begin.elapsed();
                // The system gives memory for what is written only, so that a length alone takes none.
                read.reserve_exact(least.saturating_sub(read.len()));
            }
            read.extend_from_slice(&data);
        }
        Ok(Whole {
            headers: self.head.headers,
            body: read,
            turn: Turn {
                _of_all: turn(&self.turns.all).await?,
                _of_large: large,
            },
        })
    }
}
