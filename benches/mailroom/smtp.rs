//! Delivery to Debian's smtp-sink over TLS: how fast, next to lettre's pool of connections, and in how much memory.
//!
//! smtp-sink knows no TLS: stunnel is in front of it, with TLS from the first byte. Postfix's own server would do without,
//! but it writes each mail to its queue, and the row would measure the disk. lettre has as many connections as the
//! worker, or many more, a thread for each, and makes its messages as it goes; it reads no outbox and settles nothing.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use lettre::transport::smtp::PoolConfig;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Message, SmtpTransport, Transport};

use crate::cluster::{PATIENCE, eventually};
use crate::ground;
use crate::plan::Effort;
use crate::post::Post;
use crate::process::{self, Process};
use crate::table::{Row, Target, Unit};
use crate::tls::Authority;
use crate::turns::in_turn;

const CONNECTIONS: u32 = 8;
/// Of lettre in the second row. Each of its mails takes 40 ms: it leaves Nagle's algorithm on, so that the last bytes of a
/// mail wait for the acknowledgement of those before. So many connections make up for that.
const MANY: u32 = 96;

/// The rows of SMTP.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut rows = against_lettre(effort);
    rows.push(memory(effort));
    rows
}

fn against_lettre(effort: Effort) -> Vec<Row> {
    let mut rows = [CONNECTIONS, MANY].map(|theirs| {
        let name = format!(
            "smtp over TLS, delivered and settled: worker, {CONNECTIONS} connections / lettre's pool, {theirs}"
        );
        Row::new(name, Unit::PerSecond).aiming_at(Some(Target::RatioAtLeast(1.0)))
    });
    let count = effort.of(20_000, 500);
    let sink = Sink::start();
    let mut post = sink.worker();
    let [few, many] = [CONNECTIONS, MANY].map(|connections| sink.lettre(connections));
    send(&mut post, count / 10);
    send_by_lettre(&many, MANY, count / 10);
    for round in 0..effort.of(9, 1) {
        let [worker, by_few, by_many] = in_turn::<_, 3>(round, |which| match which {
            0 => send(&mut post, count),
            1 => send_by_lettre(&few, CONNECTIONS, count / 20),
            _ => send_by_lettre(&many, MANY, count / 2),
        });
        rows[0].add(worker, by_few);
        rows[1].add(worker, by_many);
    }
    rows.into()
}

/// The worker's own memory after each tenth.
fn memory(effort: Effort) -> Row {
    let tenth = effort.of(10_000, 200);
    let name = format!(
        "smtp, the worker's own memory after {} mails / after {}",
        10 * tenth,
        2 * tenth
    );
    let mut row = Row::new(name, Unit::Kilobytes).aiming_at(Some(Target::RatioAtMost(1.05)));
    let sink = Sink::start();
    let mut post = sink.worker();
    let after: [u64; 10] = std::array::from_fn(|_| {
        send(&mut post, tenth);
        post.worker_memory("RssAnon")
    });
    row.add(after[9] as f64, after[1] as f64);
    row
}

/// Mails a second, from the moment that the worker may send until all are seen to be settled.
fn send(post: &mut Post, count: i64) -> f64 {
    post.load(count);
    post.client
        .batch_execute("VACUUM (ANALYZE) outbox")
        .unwrap();
    let begin = Instant::now();
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    // Looks at one row where there is one: the database has something better to do than to count.
    let left = "SELECT FROM outbox WHERE state IN ('scheduled', 'claimed') LIMIT 1";
    while post.client.query_opt(left, &[]).unwrap().is_some() {
        assert!(begin.elapsed() < 10 * PATIENCE, "gave up on {count} mails");
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begin.elapsed().as_secs_f64();
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), count);
    post.client
        .batch_execute("SELECT mailroom_pause(); TRUNCATE outbox CASCADE")
        .unwrap();
    count as f64 / took
}

/// Mails a second that lettre sends, from as many threads as it has connections.
fn send_by_lettre(transport: &SmtpTransport, connections: u32, count: i64) -> f64 {
    let next = AtomicI64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) + 1;
                    if number > count {
                        return;
                    }
                    let message = Message::builder()
                        .from("Shop <shop@example.com>".parse().unwrap())
                        .to("a@example.com".parse().unwrap())
                        .subject(format!("Hello {number}"))
                        .message_id(None)
                        .body("Text".to_owned())
                        .unwrap();
                    transport.send(&message).unwrap();
                }
            });
        }
    });
    count as f64 / begin.elapsed().as_secs_f64()
}

/// smtp-sink behind stunnel.
struct Sink {
    port: u16,
    certificate: PathBuf,
    _processes: [Process; 2],
}

impl Sink {
    fn start() -> Self {
        let authority = Authority::shared();
        // Free now, and most likely still so in a moment.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, behind] = std::array::from_fn(|which| free[which].local_addr().unwrap().port());
        drop(free);
        let mut sink = Command::new("/usr/sbin/smtp-sink");
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            // It wants to be another user.
            sink.args(["-u", "postfix"]);
        }
        sink.args(["-4", &format!("127.0.0.1:{behind}"), "128"]);
        let configuration = process::directory().join("stunnel.conf");
        let (key, chain) = (authority.key.display(), authority.chain.display());
        let text = format!(
            "foreground = yes\npid =\n[smtp]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{behind}\n\
             key = {key}\ncert = {chain}\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n"
        );
        std::fs::write(&configuration, text).unwrap();
        let mut stunnel = Command::new("/usr/bin/stunnel4");
        stunnel.arg(&configuration);
        let processes = [&sink, &stunnel].map(Process::start);
        for port in [behind, port] {
            eventually("the server", || {
                TcpStream::connect(("127.0.0.1", port)).ok()
            });
        }
        Self {
            port,
            certificate: authority.certificate.clone(),
            _processes: processes,
        }
    }

    /// A database whose worker delivers there, and waits.
    fn worker(&self) -> Post {
        let table = format!(
            "[transports.sink]\nprovider = \"smtp\"\nhost = \"localhost\"\nport = {}\ntls = \"implicit\"\n\
             ca_file = \"{}\"\nfrom = \"Shop <shop@example.com>\"\nallowed_networks = [\"127.0.0.0/8\"]\n\
             concurrency = {CONNECTIONS}\n",
            self.port,
            self.certificate.display()
        );
        let mut settings = ground::SETTINGS.to_vec();
        settings.push("mailroom.transport = 'sink'");
        let mut post = Post::start_with(&[table], &settings);
        post.client
            .batch_execute("SELECT mailroom_pause()")
            .unwrap();
        post
    }

    /// lettre's transport to the same place.
    fn lettre(&self, connections: u32) -> SmtpTransport {
        let pem = std::fs::read(&self.certificate).unwrap();
        let parameters = TlsParameters::builder("localhost".to_owned())
            .certificate_store(CertificateStore::None)
            .add_root_certificate(Certificate::from_pem(&pem).unwrap())
            .build()
            .unwrap();
        SmtpTransport::builder_dangerous("127.0.0.1")
            .port(self.port)
            .tls(Tls::Wrapper(parameters))
            .pool_config(
                PoolConfig::new()
                    .max_size(connections)
                    .min_idle(connections),
            )
            .build()
    }
}
