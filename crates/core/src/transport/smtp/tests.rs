use super::*;
use crate::transport::delivered::Refused;
use crate::transport::providers::MessageOutcome;
use crate::transport::providers::fixture;
use std::future::Future;

mod credentials;
mod hello;
mod kept;
mod lost;
mod recipients;
mod replies;
mod sending;
pub(crate) mod server;

use server::{CLOSE, Says, Script, start};

pub(crate) use server::Seen;

/// Runs it on a runtime as the deliverer's is.
fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

/// Trusts the certificate in these bytes.
fn trusting(pem: &[u8]) -> rustls::ClientConfig {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server::certificate(pem)).unwrap();
    rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// To a server on this machine, in clear.
fn settings(port: u16) -> Settings {
    Settings {
        host: "127.0.0.1".to_owned(),
        port,
        tls: Tls::None,
        login: Login::None,
        from: "Shop <shop@example.com>".to_owned(),
        bounce_address: None,
        helo: "client.example".to_owned(),
        networks: AllowedNetworks::parse("127.0.0.1").unwrap(),
        tls_config: trusting(server::PEM),
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        connections: 2,
    }
}

/// A relay that speaks to a server with this script.
async fn relay(script: Script) -> (Relay, Arc<Seen>) {
    let (port, seen) = start(script).await;
    (Relay::new(settings(port)).unwrap(), seen)
}

/// Sends one mail to a server with this script.
pub(crate) fn deliver(script: Script, message: &Message) -> (Delivered, Arc<Seen>) {
    run(async {
        let (relay, seen) = relay(script).await;
        (relay.send(message, now()).await, seen)
    })
}

/// The same for a server that says something else now and then.
fn deliver_to(says: Says) -> (Delivered, Arc<Seen>) {
    deliver_saying(says, &fixture::plain(1))
}

fn deliver_saying(says: Says, message: &Message) -> (Delivered, Arc<Seen>) {
    let script = Script {
        says,
        ..Script::default()
    };
    deliver(script, message)
}

fn sent(id: Option<&str>) -> MessageOutcome {
    MessageOutcome::Sent {
        provider_id: id.map(str::to_owned),
    }
}

fn unreached(delivered: &Delivered) -> &str {
    match &delivered.outcome {
        MessageOutcome::NoConnection { reason } | MessageOutcome::NotSent { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// A mail to so many.
fn to_many(count: usize) -> Message {
    let mut message = fixture::plain(1);
    let recipients = (1..=count).map(|number| format!("r{number}@example.com"));
    message.recipients = recipients.collect();
    message
}
