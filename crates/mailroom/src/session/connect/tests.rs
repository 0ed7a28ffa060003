use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::conninfo::Environment;

/// The code that a client sends to ask for TLS.
const SSL_REQUEST: [u8; 4] = [4, 210, 22, 47];

/// A server without TLS.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// It accepts connections, and never answers.
    Silent,
    Standby,
    Primary,
    /// It says that it speaks TLS, and then does not.
    BreaksTls,
}

struct Server {
    port: u16,
    /// What its clients said.
    heard: Receiver<String>,
}

impl Server {
    fn start(kind: Kind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let sender = sender.clone();
                std::thread::spawn(move || talk(&mut stream.unwrap(), kind, &sender));
            }
        });
        Self { port, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.try_iter().collect()
    }
}

/// Reads a message after its type.
fn read(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn write(stream: &mut TcpStream, kind: u8, body: &[u8]) -> std::io::Result<()> {
    let mut message = vec![kind];
    message.extend((body.len() as u32 + 4).to_be_bytes());
    message.extend(body);
    stream.write_all(&message)
}

/// Speaks the protocol of PostgreSQL as far as a connection needs it.
fn talk(stream: &mut TcpStream, kind: Kind, heard: &Sender<String>) -> std::io::Result<()> {
    if kind == Kind::Silent {
        return std::io::copy(stream, &mut std::io::sink()).map(|_| ());
    }
    if read(stream)? == SSL_REQUEST {
        heard.send("TLS".to_owned()).unwrap();
        if kind == Kind::BreaksTls {
            return stream.write_all(b"S");
        }
        stream.write_all(b"N")?;
        read(stream)?;
    }
    heard.send("start".to_owned()).unwrap();
    write(stream, b'R', &[0, 0, 0, 0])?;
    write(stream, b'Z', b"I")?;
    let mut message = [0];
    while stream.read_exact(&mut message).is_ok() && read(stream)?.starts_with(b"SHOW") {
        let is_read_only: &[u8] = match kind {
            Kind::Standby => b"\0\x01\0\0\0\x02on",
            _ => b"\0\x01\0\0\0\x03off",
        };
        write(
            stream,
            b'T',
            b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
        )?;
        write(stream, b'D', is_read_only)?;
        write(stream, b'C', b"SHOW\0")?;
        write(stream, b'Z', b"I")?;
    }
    Ok(())
}

fn target(given: &str) -> Target {
    let around = Environment {
        variables: BTreeMap::new(),
        home: None,
        user: "ada".to_owned(),
        application: "mailroom send",
    };
    Target::parse(given, &around).unwrap()
}

/// Connects, and returns why that failed.
fn try_out(given: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connected = runtime.block_on(connect(&target(given)));
    connected.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_host_that_is_silent_or_a_standby_keeps_no_other_from_its_turn() {
    let [silent, standby, primary] =
        [Kind::Silent, Kind::Standby, Kind::Primary].map(Server::start);
    for options in ["", "&load_balance_hosts=random"] {
        let given = format!(
            "postgresql://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}/app?connect_timeout=1&sslmode=disable{options}",
            silent.port, standby.port, primary.port
        );
        assert_eq!(try_out(&given), Ok(()));
        assert_eq!(primary.heard(), ["start"], "{options}");
    }
    let given = format!(
        "postgresql://ada:hunter2@127.0.0.1:{},127.0.0.1:{}/app?connect_timeout=1&sslmode=disable",
        silent.port, standby.port
    );
    let told = try_out(&given).unwrap_err();
    for wrong in [
        format!(
            "127.0.0.1:{}: the server did not answer within 1 s",
            silent.port
        ),
        format!("127.0.0.1:{}: error connecting", standby.port),
        "does not allow writes".to_owned(),
    ] {
        assert!(told.contains(&wrong), "{told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
    // A single host is not asked whether it is a standby.
    let given = format!(
        "postgresql://127.0.0.1:{}/app?sslmode=disable",
        standby.port
    );
    assert_eq!(try_out(&given), Ok(()));
}

#[test]
fn all_addresses_of_a_name_are_tried_and_it_stays_the_name_of_the_certificate() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let resolved = |given: &str| {
        let host = target(given).hosts().remove(0);
        runtime.block_on(resolve(&host.config)).unwrap()
    };
    let configs = resolved("host=localhost");
    assert!(!configs.is_empty());
    for config in configs {
        assert_eq!(config.get_hosts(), [Host::Tcp("localhost".to_owned())]);
        assert!(config.get_hostaddrs()[0].is_loopback());
    }
    let given = resolved("host=db.example hostaddr=192.0.2.1");
    assert_eq!(given[0].get_hosts(), [Host::Tcp("db.example".to_owned())]);
    assert_eq!(given[0].get_hostaddrs().len(), 1, "no name is looked up");
    assert_eq!(given.len(), 1);
    assert!(resolved("host=/run/pg")[0].get_hostaddrs().is_empty());
}

#[test]
fn a_connection_without_tls_needs_no_files_of_tls() {
    let primary = Server::start(Kind::Primary);
    for (given, wrong) in [
        (
            "host=/absent sslmode=verify-full",
            &["error connecting"][..],
        ),
        (
            "host=/absent,127.0.0.1 port=1 sslmode=verify-full",
            &[
                "/absent:1: error connecting",
                "127.0.0.1:1: there is no root",
            ],
        ),
    ] {
        let told = try_out(given).unwrap_err();
        for wrong in wrong {
            assert!(told.contains(wrong), "{given}: {told}");
        }
    }
    let given = format!(
        "host=127.0.0.1 port={} sslmode=disable sslcert=/absent sslkey=/absent",
        primary.port
    );
    assert_eq!(try_out(&given), Ok(()));
}

#[test]
fn prefer_alone_goes_on_without_tls_when_the_handshake_fails() {
    let broken = Server::start(Kind::BreaksTls);
    let url = |options: &str| format!("postgresql://127.0.0.1:{}/app?{options}", broken.port);
    for (mode, result, heard) in [
        ("prefer", Ok(()), &["TLS", "start"][..]),
        ("require", Err("TLS handshake"), &["TLS"][..]),
        ("disable", Ok(()), &["start"][..]),
    ] {
        let told = try_out(&url(&format!("sslmode={mode}")));
        assert_eq!(told.is_ok(), result.is_ok(), "{mode}: {told:?}");
        if let (Err(told), Err(wrong)) = (told, result) {
            assert!(told.contains(wrong), "{told}");
        }
        assert_eq!(broken.heard(), heard, "{mode}");
    }
    // As libpq does when the files of the client cannot be used.
    assert_eq!(try_out(&url("sslcert=/absent&sslkey=/absent")), Ok(()));
    let told = try_out(&url("channel_binding=require")).unwrap_err();
    assert!(told.contains("with TLS: error performing"), "{told}");
    assert!(told.contains("without TLS: authentication"), "{told}");
}
