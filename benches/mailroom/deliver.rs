//! Delivery over HTTP to a receiver on this machine: how fast, what slow answers cost, and how long transactions are
//! open.
//!
//! The receiver is a program of ours, a thread a connection, on the same cores. What the database costs is shown by
//! the library's own sending thread, fed with the same mails from memory: it writes, signs and sends the same
//! requests, and judges the answers. What all but HTTP costs is shown by the library's own HTTP client, sending one of
//! the requests again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;

use crate::cluster::{Cluster, PATIENCE};
use crate::delivery::credentials::Credentials;
use crate::delivery::engine::{Engine, Letter, Outcome, Parcel, Setup};
use crate::delivery::http::{Client, Conduct};
use crate::delivery::message::Message;
use crate::delivery::providers::{self, Request, Verdict};
use crate::ground;
use crate::plan::Effort;
use crate::post::{Post, SECRET};
use crate::receiver::{self, Reaction, Receiver, status};
use crate::table::{Row, Target, Unit};

const CONCURRENCY: usize = 64;
/// So many mails are with the sending thread, as the worker has it.
const AHEAD: i64 = 2_048;
const TIMEOUT: Duration = Duration::from_secs(10);
const LATENCY: Duration = Duration::from_millis(50);

/// The rows of delivery.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut rate = Row::new(
        "webhook, delivered and settled: worker / 5000",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(1.0)));
    let mut alone = Row::new(
        "webhook: worker / its sending thread with no database behind it",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(0.5)));
    let mut bare = Row::new(
        "webhook: worker / its HTTP client with one request again and again",
        Unit::PerSecond,
    );
    let mut slow = Row::new(
        "answers after 50 ms: worker / concurrency by latency",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(0.9)));
    let mut dead = Row::new(
        "1 % never answered: the other 99 % / without it",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(0.9)));
    let mut longest = Row::new("longest transaction while sending / 100 ms", Unit::Millis)
        .aiming_at(Some(Target::NeverAbove(100.0)));
    let count = effort.of(100_000, 2_000);
    for _ in 0..effort.of(3, 1) {
        let with = deliver(count, count, |_| status(200));
        rate.add(with.rate, 5_000.0);
        alone.add(with.rate, send_alone(count));
        bare.add(with.rate, send_bare(count, with.request));
        longest.add(with.longest, 100.0);
        let late = deliver(count / 5, count / 5, |_| Reaction::Late(LATENCY, 200));
        slow.add(late.rate, CONCURRENCY as f64 / LATENCY.as_secs_f64());
        // One in a hundred, by the subject's number; a message_id may end like that as well.
        let some = deliver(count, count - count / 100, |request| {
            if request.says("00\",\"text\"") {
                Reaction::Hang
            } else {
                status(200)
            }
        });
        dead.add(some.rate, with.rate);
    }
    vec![rate, alone, bare, slow, dead, longest]
}

/// What one run came to.
struct Run {
    /// Mails a second, from the first that was claimed to the last that was settled.
    rate: f64,
    /// The longest that a transaction of the worker was seen open, in milliseconds.
    longest: f64,
    /// One of the requests.
    request: receiver::Request,
}

/// A database whose worker delivers to this receiver, and waits.
pub fn start(receiver: &Receiver) -> Post {
    let mut settings = ground::SETTINGS.to_vec();
    settings.push("mailroom.http_timeout = '10s'");
    let mut post = Post::start(receiver, &settings);
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    post
}

/// Has so many mails delivered, of which this many are ever answered.
fn deliver(
    count: i64,
    answered: i64,
    react: impl Fn(&receiver::Request) -> Reaction + Send + Sync + 'static,
) -> Run {
    let seen = Arc::new(std::sync::Mutex::new(None));
    let first = Arc::clone(&seen);
    let receiver = Receiver::start(move |request| {
        first.lock().unwrap().get_or_insert_with(|| request.clone());
        react(request)
    });
    let mut post = start(&receiver);
    post.load(count);
    post.client
        .batch_execute("VACUUM (ANALYZE) outbox")
        .unwrap();
    let watch = Transactions::watch(&post.cluster);
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    // The receiver is asked for as long as that tells enough: the server has something better to do.
    let deadline = Instant::now() + 10 * PATIENCE;
    while (receiver.count() as i64) < answered {
        assert!(Instant::now() < deadline, "gave up on {count} mails");
        std::thread::sleep(Duration::from_millis(5));
    }
    post.wait_for("state = 'sent'", answered);
    let took = "SELECT extract(epoch FROM max(ended_at) - min(claimed_at))::float8 FROM outbox WHERE state = 'sent'";
    let seconds: f64 = post.client.query_one(took, &[]).unwrap().get(0);
    let request = seen.lock().unwrap().clone().unwrap();
    Run {
        rate: answered as f64 / seconds,
        longest: watch.stop(),
        request,
    }
}

/// The same mails, sent by the worker's own thread.
fn send_alone(count: i64) -> f64 {
    let receiver = Receiver::start(|_| status(200));
    let credentials = Credentials::parse(SECRET.as_bytes()).ok().unwrap();
    let provider = providers::choose("webhook", &receiver.endpoint(), "", &credentials).unwrap();
    let setup = Setup {
        provider: provider.into(),
        conduct: Conduct::on_loopback(TIMEOUT),
        slots: (CONCURRENCY, 0),
    };
    let mut engine = Engine::start(setup, |body| Ok(std::thread::spawn(body))).unwrap();
    let (mut handed, mut sent) = (0, 0);
    let begin = Instant::now();
    while sent < count {
        while handed < count && handed - sent < AHEAD {
            handed += 1;
            engine.send(parcel(handed));
        }
        engine.ring_at(512.min(handed - sent) as usize);
        let mut bell = libc::pollfd {
            fd: engine.bell(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, which is open for as long as the engine is there.
        unsafe { libc::poll(&raw mut bell, 1, 20) };
        for report in engine.reports() {
            assert!(
                matches!(&report.outcome, Outcome::Answered(of) if matches!(of[..], [Verdict::Sent { .. }])),
                "{report:?}"
            );
            sent += 1;
        }
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

/// A mail as [`Post::load`] makes them.
fn parcel(number: i64) -> Parcel {
    let message = Message {
        id: number,
        message_id: format!("00000000-0000-4000-8000-{number:012x}"),
        kind: "own".to_owned(),
        recipients: vec!["a@example.com".to_owned()],
        cc: Vec::new(),
        bcc: Vec::new(),
        subject: format!("Hello {number}"),
        body_text: Some("Text".to_owned()),
        body_html: None,
        data: RawValue::from_string("{}".to_owned()).unwrap(),
        attempts: 0,
        created_at: 1_800_000_000,
    };
    Parcel {
        letters: vec![Letter {
            message,
            expires_at: None,
            size: 100,
            may_have_arrived: false,
        }],
        turn: 1,
        repeat: None,
    }
}

/// The same client and the same request, again and again.
fn send_bare(count: i64, like: receiver::Request) -> f64 {
    let receiver = Receiver::start(|_| status(200));
    let mut headers = HeaderMap::new();
    for (name, value) in &like.headers {
        if !["host", "content-length", "user-agent"].contains(&name.as_str()) {
            headers.insert(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
    }
    let uri: hyper::Uri = receiver.endpoint().parse().unwrap();
    let body = Bytes::from(like.body);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let seconds = runtime.block_on(async {
        let client = Arc::new(Client::new(Conduct::on_loopback(TIMEOUT)));
        let left = Arc::new(std::sync::atomic::AtomicI64::new(count));
        let begin = Instant::now();
        let senders: Vec<_> = (0..CONCURRENCY)
            .map(|_| {
                let (client, left) = (Arc::clone(&client), Arc::clone(&left));
                let (uri, headers, body) = (uri.clone(), headers.clone(), body.clone());
                tokio::spawn(async move {
                    while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                        let request = Request {
                            uri: uri.clone(),
                            headers: headers.clone(),
                            body: body.clone(),
                        };
                        assert_eq!(client.post(request).await.ok().unwrap().status, 200);
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
        begin.elapsed().as_secs_f64()
    });
    count as f64 / seconds
}

/// Looks at the worker's transactions all the time.
struct Transactions {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<f64>,
}

impl Transactions {
    fn watch(cluster: &Cluster) -> Self {
        let mut client = cluster.connect("app");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let query = client
                .prepare(
                    "SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 * 1000 \
                     FROM pg_stat_activity WHERE backend_type = 'mailroom worker' AND xact_start IS NOT NULL",
                )
                .unwrap();
            let mut longest = 0_f64;
            while !told.load(Ordering::Acquire) {
                let age = client.query_opt(&query, &[]).unwrap();
                longest = longest.max(age.map_or(0.0, |row| row.get(0)));
                std::thread::sleep(Duration::from_millis(5));
            }
            longest
        });
        Self { stop, thread }
    }

    fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}
