//! Recognizes requests that failed before a byte was written. Pure.

use std::error::Error;

/// Whether this error, or one in its chain, shows that: hyper cancels a request only while it waits for its connection.
pub(super) fn is_unwritten(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// The error of a request over a new connection that ends before the request is sent, or after it was read.
    async fn failure(is_sent: bool) -> hyper::Error {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let request = hyper::Request::new(Full::new(Bytes::from_static(b"body")));
        let answer = sender.send_request(request);
        if is_sent {
            let serve = async {
                server.readable().await.unwrap();
                drop(server);
            };
            let (answer, _, ()) = tokio::join!(answer, connection, serve);
            answer.unwrap_err()
        } else {
            drop(connection);
            answer.await.unwrap_err()
        }
    }

    #[test]
    fn only_what_waits_for_its_connection_is_unwritten() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let unsent = runtime.block_on(failure(false));
        assert!(is_unwritten(&unsent), "{unsent:?}");
        let sent = runtime.block_on(failure(true));
        assert!(!is_unwritten(&sent), "{sent:?}");
    }
}
