//! A minimal DNS server on loopback, and a server that asks it instead of the machine's resolver.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::counterparts::scene::Scene;

/// The answer for a name.
#[derive(Clone)]
pub enum Answer {
    /// These addresses.
    Addresses(Vec<Ipv4Addr>),
    /// No reply, so that the client waits.
    Silence,
    /// A server failure.
    Failure,
}

/// The DNS server. It replies that unknown names do not exist.
pub struct Names {
    zone: Arc<Mutex<HashMap<String, Answer>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    dialled: PathBuf,
}

impl Names {
    /// Starts it, and restarts the server of a scene so that it asks this one.
    pub fn start(scene: &Scene) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let scratch = scene.cluster.scratch();
        let resolv = scratch.join("resolv.conf");
        std::fs::write(
            &resolv,
            "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        )
        .unwrap();
        let mut names = Self {
            zone: Arc::default(),
            stop: Arc::default(),
            thread: None,
            address: socket.local_addr().unwrap(),
            dialled: scratch.join("dialled"),
        };
        scene.restart_under(
            "tests/names/redirect.c",
            &[
                ("MAILROOM_RESOLV", resolv.to_str().unwrap()),
                ("MAILROOM_DNS", &names.address.port().to_string()),
                ("MAILROOM_DIALLED", names.dialled.to_str().unwrap()),
            ],
        );
        let (zone, stop) = (Arc::clone(&names.zone), Arc::clone(&names.stop));
        names.thread = Some(std::thread::spawn(move || {
            let mut packet = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((size, from)) = socket.recv_from(&mut packet)
                    && let Some(reply) = reply(&packet[..size], &zone.lock().unwrap())
                {
                    let _ = socket.send_to(&reply, from);
                }
            }
        }));
        names
    }

    /// Sets the answer for a name.
    pub fn say(&self, name: &str, answer: Answer) {
        self.zone.lock().unwrap().insert(name.to_owned(), answer);
    }

    /// The addresses that the server has connected to so far.
    pub fn dialled(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.dialled).unwrap_or_default();
        let mut addresses: Vec<String> = text.lines().map(str::to_owned).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

/// The reply to a query for one name (RFC 1035, section 4); `None` if no reply is sent.
fn reply(query: &[u8], zone: &HashMap<String, Answer>) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let question = query.get(HEADER..at + 4)?;
    let is_for_ipv4 = query[at..at + 2] == [0, 1];
    let no_such_name = 3;
    let (code, addresses) = match zone.get(&labels.join(".")) {
        Some(Answer::Silence) => return None,
        Some(Answer::Failure) => (2, Vec::new()),
        Some(Answer::Addresses(addresses)) if is_for_ipv4 => (0, addresses.clone()),
        Some(Answer::Addresses(_)) => (0, Vec::new()),
        None => (no_such_name, Vec::new()),
    };
    let mut reply = Vec::from(&query[..2]);
    // A response, recursion desired and available; one question, the answers, nothing else.
    reply.extend([
        0x81,
        0x80 | code,
        0,
        1,
        0,
        u8::try_from(addresses.len()).ok()?,
    ]);
    reply.extend([0; 4]);
    reply.extend(question);
    for address in addresses {
        // The name of the question; A, IN, a TTL of zero, four bytes.
        reply.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
