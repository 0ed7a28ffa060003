//! Delivery over HTTP to a receiver on this machine: how fast, what slow answers cost, how long transactions are
//! open, and whether memory grows.
//!
//! The receiver is a program of ours, a thread a connection, on the same cores. What it can take at all is shown
//! by the bare client: the library's own, sending what the worker sent, with no database behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::cluster::{Cluster, PATIENCE};
use crate::delivery::guard::Networks;
use crate::delivery::http::{Client, Conduct};
use crate::delivery::providers::Request;
use crate::ground;
use crate::plan::Effort;
use crate::post::Post;
use crate::receiver::{self, Reaction, Receiver, status};
use crate::table::{Row, Target, Unit};

const CONCURRENCY: usize = 64;
const LATENCY: Duration = Duration::from_millis(50);

/// The rows of delivery.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut rate = Row::new(
        "webhook, delivered and settled: worker / 5000",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(1.0)));
    let mut bare = Row::new("webhook: worker / bare client", Unit::PerSecond)
        .aiming_at(Some(Target::RatioAtLeast(0.5)));
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
    vec![rate, bare, slow, dead, longest, memory(effort)]
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
fn start(receiver: &Receiver) -> Post {
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
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    let seconds = runtime.block_on(async {
        let client = Arc::new(Client::new(Conduct {
            networks: Networks::parse("127.0.0.1").unwrap(),
            tls,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
        }));
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

/// The worker's memory after a hundredth of the mails, and after all of them.
fn memory(effort: Effort) -> Row {
    let few = effort.of(10_000, 500);
    let mut row = Row::new(
        format!(
            "the worker's memory after {} mails / after {few}",
            100 * few
        ),
        Unit::Kilobytes,
    )
    .aiming_at(Some(Target::RatioAtMost(1.2)));
    let receiver = Receiver::start(|_| status(200));
    let mut post = start(&receiver);
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    let mut sent = 0;
    let mut deliver = |post: &mut Post, count: i64| {
        post.load(count);
        sent += count;
        while (receiver.count() as i64) < sent {
            std::thread::sleep(Duration::from_millis(20));
        }
        post.wait_for("state = 'sent'", count);
        for tidy in ["DELETE FROM outbox WHERE state = 'sent'", "VACUUM outbox"] {
            post.client.batch_execute(tidy).unwrap();
        }
    };
    deliver(&mut post, few);
    let early = post.worker_memory("VmRSS");
    for _ in 1..100 {
        deliver(&mut post, few);
    }
    row.add(post.worker_memory("VmRSS") as f64, early as f64);
    row
}
