//! A small server of HTTP/1.1 on one thread, without TLS. A [`Handler`] decides what a request means.
//!
//! | module | owns |
//! |---|---|
//! | `exchange` | a request, its limits, and the answer |
//! | `program` | a program that serves until a signal stops it |
//!
//! What a client can make it hold is bounded: connections, their heads, bodies, and the time of each. A few requests are
//! answered at a time; others wait for their turn.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

mod exchange;
mod program;

use self::exchange::Turns;
pub use self::exchange::{Answer, Exchange, Turn, text, with};
pub use self::program::run as serve;
use crate::control::Control;
use crate::log::{Log, Throttle};

/// Maximum number of connections. Further ones wait in the queue of the system.
const CONNECTIONS: usize = 256;
/// Maximum size of a request's head in bytes.
const HEAD_MAX: usize = 64 * 1024;
/// Maximum time until a request's head is there, from the connection or the answer before it.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a connection is used.
const CONNECTION_TIME: Duration = Duration::from_secs(600);
/// How long a request may take, from its head to its answer, that has begun by then.
const LAST_TIME: Duration = Duration::from_secs(90);
/// How long a client that still sends may read the answer before the connection is reset.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// How long connections have for their answers after a stop.
const STOP_TIME: Duration = Duration::from_secs(5);
/// The pause after the system has refused a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// What answers requests.
pub trait Handler: 'static {
    /// The answer to a request.
    fn answer(&self, exchange: Exchange) -> impl Future<Output = Answer>;

    /// Gets ready before the first request; returns whether to serve at all.
    fn check(&self) -> impl Future<Output = bool> {
        std::future::ready(true)
    }

    /// Reads files again.
    fn reload(&self) {}

    /// Ends after the last request.
    fn close(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// Serves until it is told to stop, and then until all requests are answered, for [`STOP_TIME`] at most. Must be called
/// within a `LocalSet`.
async fn run<H: Handler>(listener: TcpListener, handler: Rc<H>, log: Log, mut control: Control) {
    let turns = Turns::default();
    let mut refusals = Throttle::default();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = control.stopped() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let shared = (Rc::clone(&handler), turns.clone());
                    connections.spawn_local(attend(stream, peer.ip(), shared, control.clone()));
                }
                Err(error) => {
                    if refusals.pass(std::time::Instant::now()).is_some() {
                        log.warn(&format!("the system refuses a connection: {error}"), "", "");
                    }
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(STOP_TIME, ended).await;
}

/// Serves a connection until either side closes it.
async fn attend<H: Handler>(
    stream: TcpStream,
    peer: IpAddr,
    (handler, turns): (Rc<H>, Turns),
    mut control: Control,
) {
    // An answer is one write, which must not wait for more.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let exchange = Exchange::new(request, peer, turns.clone());
        let handler = Rc::clone(&handler);
        Box::pin(async move { Ok::<_, Infallible>(handler.answer(exchange).await) })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut limit = pin!(sleep(CONNECTION_TIME));
    let mut is_last = false;
    loop {
        tokio::select! {
            biased;
            // An error is the client's: it has gone, or sent something else than HTTP.
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => break,
            () = control.stopped(), if !is_last => {}
            () = limit.as_mut() => {
                if is_last {
                    return;
                }
            }
        }
        // The request that has begun is the last one.
        is_last = true;
        limit.as_mut().reset(Instant::now() + LAST_TIME);
        Pin::new(&mut connection).graceful_shutdown();
    }
    linger(connection.into_parts().io.into_inner()).await;
}

/// Closes a connection. If the client still sends, closing it at once would make the system of the client discard the answer.
async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut unread = vec![0; 16 * 1024];
    let end = async { while matches!(stream.read(&mut unread).await, Ok(1..)) {} };
    let _ = timeout(LINGER_TIME, end).await;
}
