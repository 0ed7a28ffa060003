//! The body of a request. Pure.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Whether the last piece of a request's body was taken, and with it the right to take it.
#[derive(Clone, Default)]
pub struct Taken(Arc<AtomicBool>);

impl Taken {
    /// Takes the body, unless it was taken: from now on the server cannot get it. Returns false if it was taken before.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The most that the client is handed at a time, in bytes. It asks for more when the socket, or the window of an HTTP/2
/// stream, has taken most of what it has.
const PIECE: usize = 64 << 10;

/// A body of which the last piece is taken once: by the client to be written, or by the caller who gives the request up.
/// Until the client takes it the server cannot have the whole request. The client may do so after the caller has stopped
/// waiting: over HTTP/2 it keeps one request that waits for a stream, and writes it when there is one.
pub(super) struct Outgoing {
    data: Bytes,
    taken: Taken,
}

impl Outgoing {
    /// The body, which may be empty.
    pub(super) fn of(data: Bytes) -> Self {
        Self {
            data,
            taken: Taken::default(),
        }
    }

    /// The body, which must not be empty, and whether it was taken.
    pub(super) fn new(data: Bytes) -> (Self, Taken) {
        debug_assert!(!data.is_empty(), "an empty body is not asked for");
        let body = Self::of(data);
        let taken = body.taken.clone();
        (body, taken)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.data.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.data.len().min(PIECE);
        let piece = self.data.split_to(length);
        let is_given_up = if self.data.is_empty() {
            !self.taken.take()
        } else {
            self.taken.is_taken()
        };
        if is_given_up {
            return Poll::Ready(Some(Err(h2::Reason::CANCEL.into())));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.data.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use hyper::client::conn::{http1, http2};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::Builder;
    use tokio::sync::{Notify, mpsc};

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(test)
    }

    fn request() -> (hyper::Request<Outgoing>, Taken) {
        let (body, taken) = Outgoing::new(Bytes::from_static(b"body"));
        let mut request = hyper::Request::new(body);
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = "http://example.com/".parse().unwrap();
        (request, taken)
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
        let (request, taken) = request();
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
        !taken.take()
    }

    #[test]
    fn what_waits_for_its_connection_is_not_taken() {
        assert!(!run(is_taken_before_the_end(false)));
        assert!(run(is_taken_before_the_end(true)));
    }

    /// Over a connection whose server allows one request at a time: how many of five requests are taken while the first
    /// is not answered, and what the server reads of all when the others have been given up before it is.
    async fn over_one_stream() -> (usize, Vec<Result<usize, h2::Reason>>) {
        let (stream, server) = connection().await;
        let (read, mut reads) = mpsc::unbounded_channel();
        let answer = Arc::new(Notify::new());
        let answered = Arc::clone(&answer);
        tokio::spawn(async move {
            let mut allowing = h2::server::Builder::new();
            let allowing = allowing.max_concurrent_streams(1);
            let mut connection = allowing.handshake::<_, Bytes>(server).await.unwrap();
            while let Some(Ok((request, mut response))) = connection.accept().await {
                let (read, answered) = (read.clone(), Arc::clone(&answered));
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    let mut length = Ok(0);
                    while let Some(data) = body.data().await {
                        length = match data {
                            Ok(data) => length.map(|length| length + data.len()),
                            Err(error) => Err(error.reason().unwrap()),
                        };
                    }
                    read.send(length).unwrap();
                    answered.notified().await;
                    let _ = response.send_response(hyper::Response::new(()), true);
                });
            }
        });
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let send = || {
            let (request, taken) = request();
            let mut sender = sender.clone();
            (
                tokio::spawn(async move { sender.send_request(request).await }),
                taken,
            )
        };
        // The server's limit has arrived with its answer.
        let (first, _) = send();
        let mut read = vec![reads.recv().await.unwrap()];
        answer.notify_one();
        first.await.unwrap().unwrap();
        let mut sent: Vec<_> = (0..5).map(|_| send()).collect();
        read.push(reads.recv().await.unwrap());
        // Gives up those that are not taken.
        let taken = sent.iter().filter(|(_, taken)| !taken.take()).count();
        answer.notify_one();
        sent.remove(0).0.await.unwrap().unwrap();
        for (request, _) in sent {
            // If the server has it after all, it answers.
            answer.notify_one();
            request.await.unwrap().unwrap_err();
        }
        while let Ok(more) = reads.try_recv() {
            read.push(more);
        }
        (taken, read)
    }

    #[test]
    fn what_waits_for_a_stream_is_not_taken_and_not_written_after_it_was_given_up() {
        let (taken, read) = run(over_one_stream());
        assert_eq!(taken, 1);
        let (whole, parts) = read.split_at(2);
        assert_eq!(whole, [Ok(4), Ok(4)]);
        assert!(
            parts.iter().all(|part| *part == Err(h2::Reason::CANCEL)),
            "{parts:?}"
        );
    }
}
