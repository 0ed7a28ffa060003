//! Connecting to a host that has several addresses.

use std::io;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::network_policy::Permitted;

/// Connects to the first of these addresses that responds by the deadline. Each but the last has half of the time that is
/// left: a network that drops packets, as many do with IPv6, must not keep the next address from being tried.
///
/// # Errors
/// The last failure, with the address that was denied.
pub async fn connect(permitted: &Permitted, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let addresses = &permitted.addresses;
    let mut failure = io::Error::other("the name has no address");
    for (address, untried) in addresses.iter().zip((0..addresses.len()).rev()) {
        let left = deadline.saturating_duration_since(Instant::now());
        let part = if untried == 0 { left } else { left / 2 };
        match tokio::time::timeout(part, TcpStream::connect((*address, port))).await {
            Ok(Ok(stream)) => {
                // Only makes it faster.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::Error::new(io::ErrorKind::TimedOut, "timeout while connecting"),
        }
    }
    Err(match permitted.denied {
        Some(denied) => {
            let text = format!("{failure}; address {denied} was denied, see allowed_networks");
            io::Error::new(failure.kind(), text)
        }
        None => failure,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    const SILENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    fn permitted(addresses: &[Ipv4Addr]) -> Permitted {
        Permitted {
            addresses: addresses.iter().copied().map(IpAddr::V4).collect(),
            denied: None,
        }
    }

    #[test]
    fn an_address_that_does_not_respond_leaves_time_for_the_next() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = there.local_addr().unwrap().port();
            // Its queue is full, so that it drops packets.
            let silent = TcpSocket::new_v4().unwrap();
            silent.bind((SILENT, port).into()).unwrap();
            let _silent = silent.listen(0).unwrap();
            let _first = TcpStream::connect((SILENT, port)).await.unwrap();
            let deadline = || Instant::now() + Duration::from_secs(2);
            let alone = connect(&permitted(&[SILENT]), port, deadline()).await;
            assert_eq!(alone.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let both = permitted(&[SILENT, Ipv4Addr::LOCALHOST]);
            let connected = connect(&both, port, deadline()).await.unwrap();
            assert_eq!(connected.peer_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
            let none = connect(&permitted(&[]), port, deadline()).await;
            assert_eq!(none.unwrap_err().to_string(), "the name has no address");
        });
    }

    #[test]
    fn a_failure_names_the_address_that_was_denied() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = closed.local_addr().unwrap().port();
            drop(closed);
            let rest = Permitted {
                denied: Some([10, 0, 0, 1].into()),
                ..permitted(&[Ipv4Addr::LOCALHOST])
            };
            let deadline = Instant::now() + Duration::from_secs(2);
            let error = connect(&rest, port, deadline).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            let text = error.to_string();
            assert!(
                text.ends_with("; address 10.0.0.1 was denied, see allowed_networks"),
                "{text}"
            );
        });
    }
}
