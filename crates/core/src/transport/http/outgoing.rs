//! The body of a request. Pure.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A body that tells whether it was taken to be written. Until then the server cannot have the whole request, whatever
/// the connection did.
pub(super) struct Outgoing {
    data: Option<Bytes>,
    is_taken: Arc<AtomicBool>,
}

impl Outgoing {
    /// The body, which must not be empty, and whether it was taken.
    pub(super) fn new(data: Bytes) -> (Self, Arc<AtomicBool>) {
        let is_taken = Arc::new(AtomicBool::new(false));
        let body = Self {
            data: Some(data),
            is_taken: Arc::clone(&is_taken),
        };
        (body, is_taken)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take();
        self.is_taken.store(true, Ordering::Release);
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::client::conn::{http1, http2};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::Builder;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(test)
    }

    fn request() -> (hyper::Request<Outgoing>, Arc<AtomicBool>) {
        let (body, is_taken) = Outgoing::new(Bytes::from_static(b"body"));
        let mut request = hyper::Request::new(body);
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = "http://example.com/".parse().unwrap();
        (request, is_taken)
    }

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        (stream, listener.accept().await.unwrap().0)
    }

    /// Whether the body was taken of a request over a connection that ends before the request is written, or after.
    async fn is_taken_before_the_end(is_written: bool) -> bool {
        let (stream, server) = connection().await;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let (request, is_taken) = request();
        let answer = sender.send_request(request);
        if is_written {
            let serve = async {
                server.readable().await.unwrap();
                drop(server);
            };
            let (answer, _, ()) = tokio::join!(answer, connection, serve);
            answer.unwrap_err();
        } else {
            drop(connection);
            answer.await.unwrap_err();
        }
        is_taken.load(Ordering::Acquire)
    }

    #[test]
    fn what_waits_for_its_connection_is_not_taken() {
        assert!(!run(is_taken_before_the_end(false)));
        assert!(run(is_taken_before_the_end(true)));
    }

    /// How many of five requests are taken by a server that allows one at a time and answers none.
    async fn taken_of_five() -> usize {
        let (stream, server) = connection().await;
        let serve = tokio::spawn(async move {
            let mut allowing = h2::server::Builder::new();
            let handshake = allowing
                .max_concurrent_streams(1)
                .handshake::<_, Bytes>(server);
            let mut connection = handshake.await.unwrap();
            let mut unanswered = Vec::new();
            while let Some(Ok(request)) = connection.accept().await {
                unanswered.push(request);
            }
        });
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.unwrap();
        let connection = tokio::spawn(connection);
        // The limit of the server arrives.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut taken = Vec::new();
        for _ in 0..5 {
            let (request, is_taken) = request();
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request).await.map(drop) });
            taken.push(is_taken);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        connection.abort();
        serve.abort();
        let taken = taken.iter().filter(|taken| taken.load(Ordering::Acquire));
        taken.count()
    }

    #[test]
    fn what_waits_for_a_stream_is_not_taken() {
        // The library takes one more, which it writes when there is a stream.
        let taken = run(taken_of_five());
        assert!((1..=2).contains(&taken), "{taken}");
    }
}
