//! A network of some milliseconds between a sender and its database: a proxy that hands on what it reads a while later.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// A directory with a socket, for `host`.
pub struct Proxy {
    directory: PathBuf,
}

impl Proxy {
    /// In front of this cluster; each direction takes so long.
    pub fn start(cluster: &Cluster, delay: Duration) -> Self {
        let name = ".s.PGSQL.5432";
        let directory = cluster.scratch().join("proxy");
        std::fs::create_dir(&directory).unwrap();
        let listener = UnixListener::bind(directory.join(name)).unwrap();
        let server = cluster.socket().join(name);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
                hand_on(&client, &server, delay);
                hand_on(&server, &client, delay);
            }
        });
        Self { directory }
    }

    /// The socket's directory.
    pub fn socket(&self) -> &Path {
        &self.directory
    }
}

/// One direction of a connection, until its end.
fn hand_on(from: &UnixStream, to: &UnixStream, delay: Duration) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 256 * 1024];
        while let Ok(read) = from.read(&mut buffer) {
            let due = Instant::now() + delay;
            if read == 0 || sender.send((due, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}
