//! The engine against a server of its own, and what a panic of its thread costs.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;
use crate::delivery::providers::{Answer, Request, fixture};

/// Sends mail to a port, and has its bugs: it panics over what a subject says, and when it is replaced.
struct Fragile {
    port: u16,
    panics_at_its_end: bool,
}

impl Provider for Fragile {
    fn batch_limit(&self) -> usize {
        10
    }

    fn is_idempotent(&self) -> bool {
        false
    }

    fn request(&self, messages: &[&Message], _now: SystemTime) -> Result<Request, String> {
        if messages.iter().any(|message| message.subject == "poison") {
            panic!("a bug in the making of a request");
        }
        Ok(Request {
            uri: format!("http://127.0.0.1:{}/", self.port).parse().unwrap(),
            headers: hyper::HeaderMap::new(),
            body: messages[0].subject.clone().into(),
        })
    }

    fn verdicts(&self, messages: usize, answer: &Answer<'_>) -> Vec<Verdict> {
        assert_ne!(answer.body, b"poison", "a bug in the reading of an answer");
        let verdict = if answer.body == b"unwelcome" {
            unwelcome()
        } else {
            Verdict::Sent { provider_id: None }
        };
        vec![verdict; messages]
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.panics_at_its_end && !std::thread::panicking() {
            panic!("a bug in the engine itself");
        }
    }
}

fn setup(port: u16, slots: usize, panics_at_its_end: bool) -> Setup {
    Setup {
        provider: Arc::new(Fragile {
            port,
            panics_at_its_end,
        }),
        conduct: Conduct::on_loopback(Duration::from_secs(600)),
        slots: (slots, 0),
    }
}

fn start(setup: Setup) -> Engine {
    Engine::start(setup, |body| Ok(std::thread::spawn(body))).unwrap()
}

fn letter(number: u8, subject: &str) -> Letter {
    Letter {
        message: Message {
            subject: subject.to_owned(),
            ..fixture::plain(number)
        },
        expires_at: None,
        size: 1,
        may_have_arrived: false,
        ambiguous_attempts: 0,
        priority: 0,
        send_at: 0,
    }
}

fn parcel(letters: Vec<Letter>) -> Parcel {
    Parcel {
        letters,
        turn: 1,
        repeat: None,
    }
}

/// Answers each request with its own body, but none while `gate` is locked.
#[derive(Default)]
struct Echo {
    gate: Mutex<()>,
    requests: AtomicUsize,
}

impl Echo {
    /// Starts it; returns its port.
    fn start(self: &Arc<Self>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let echo = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let echo = Arc::clone(&echo);
                std::thread::spawn(move || answer(stream, &echo));
            }
        });
        port
    }
}

/// A server that answers at once.
fn echo() -> u16 {
    Arc::new(Echo::default()).start()
}

/// One request on a connection.
fn answer(mut stream: std::net::TcpStream, echo: &Echo) {
    let mut seen = Vec::new();
    let mut part = [0; 1024];
    let body = loop {
        let read = stream.read(&mut part).unwrap_or(0);
        seen.extend(&part[..read]);
        let text = String::from_utf8_lossy(&seen).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(read > 0, "no request");
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            break body.to_owned();
        }
    };
    echo.requests.fetch_add(1, Ordering::Relaxed);
    let _open = echo.gate.lock().unwrap_or_else(PoisonError::into_inner);
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

/// Waits for something to come true.
fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !condition() {
        assert!(Instant::now() < deadline, "it never came true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for so many reports; by the numbers of their letters.
fn reports(engine: &mut Engine, count: usize) -> Vec<(Vec<i64>, Outcome)> {
    let deadline = Instant::now() + Duration::from_secs(180);
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < deadline, "only {all:?}");
        std::thread::sleep(Duration::from_millis(2));
        for report in engine.reports() {
            let ids: Vec<i64> = report.parcel.letters.iter().map(|l| l.message.id).collect();
            all.push((ids, report.outcome));
        }
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn sent() -> Outcome {
    Outcome::Answered(vec![Verdict::Sent { provider_id: None }])
}

fn unwelcome() -> Verdict {
    Verdict::Broken {
        reason: "unwelcome".to_owned(),
    }
}

fn given_up() -> Outcome {
    let reason = "given up before there was an answer".to_owned();
    Outcome::Answered(vec![Verdict::Unknown { reason }])
}

#[test]
fn a_panic_over_one_mail_is_that_mails_alone() {
    let mut engine = start(setup(echo(), 4, false));
    // The other two go together.
    engine.send(parcel(vec![
        letter(1, "good"),
        letter(2, "poison"),
        letter(3, "good"),
    ]));
    engine.send(parcel(vec![letter(4, "good")]));
    let reason = "the request could not be made: a bug in mailroom".to_owned();
    let both = Outcome::Answered(vec![Verdict::Sent { provider_id: None }; 2]);
    let expected = [
        (vec![1, 3], both),
        (vec![2], Outcome::Unsendable(reason)),
        (vec![4], sent()),
    ];
    assert_eq!(reports(&mut engine, 3), expected);
    assert!(!engine.has_failed());
}

#[test]
fn a_panic_over_an_answer_is_a_request_without_one() {
    struct Poisonous(Fragile);
    impl Provider for Poisonous {
        fn is_idempotent(&self) -> bool {
            false
        }
        fn request(&self, messages: &[&Message], now: SystemTime) -> Result<Request, String> {
            let mut request = self.0.request(messages, now)?;
            if messages[0].id == 2 {
                request.body = "poison".into();
            }
            Ok(request)
        }
        fn verdicts(&self, messages: usize, answer: &Answer<'_>) -> Vec<Verdict> {
            self.0.verdicts(messages, answer)
        }
    }
    let mut setup = setup(0, 4, false);
    setup.provider = Arc::new(Poisonous(Fragile {
        port: echo(),
        panics_at_its_end: false,
    }));
    let mut engine = start(setup);
    engine.send(parcel(vec![letter(2, "any")]));
    engine.send(parcel(vec![letter(3, "good")]));
    let expected = [(vec![2], given_up()), (vec![3], sent())];
    assert_eq!(reports(&mut engine, 2), expected);
    assert!(!engine.has_failed());
}

#[test]
fn what_is_handed_over_before_a_refusal_was_heard_is_not_sent() {
    let echo = Arc::new(Echo::default());
    let mut engine = start(setup(echo.start(), 2, false));
    engine.send(parcel(vec![letter(1, "unwelcome")]));
    until(|| engine.shared.lock().len() == 1);
    // A slot is free, and nobody has taken the report.
    engine.send(parcel(vec![letter(2, "good")]));
    until(|| engine.shared.lock().len() == 2);
    assert_eq!(echo.requests.load(Ordering::Relaxed), 1);
    let refused = Outcome::Answered(vec![unwelcome()]);
    let expected = [(vec![1], refused), (vec![2], Outcome::Unsent)];
    assert_eq!(reports(&mut engine, 2), expected);
    engine.send(parcel(vec![letter(3, "good")]));
    assert_eq!(reports(&mut engine, 1), [(vec![3], sent())]);
}

#[test]
fn when_the_thread_dies_everything_comes_back_as_what_it_is() {
    let echo = Arc::new(Echo::default());
    let port = echo.start();
    let _closed = echo.gate.lock().unwrap();
    let mut engine = start(setup(port, 1, false));
    // Under way; waiting for its slot; sent to the thread behind what kills it, and after its death.
    engine.send(parcel(vec![letter(1, "good")]));
    until(|| echo.requests.load(Ordering::Relaxed) == 1);
    engine.send(parcel(vec![letter(2, "good"), letter(3, "good")]));
    engine.set_up(setup(port, 1, true));
    engine.set_up(setup(port, 1, false));
    engine.send(parcel(vec![letter(4, "good")]));
    until(|| engine.has_failed());
    engine.stop();
    engine.send(parcel(vec![letter(5, "good")]));
    let expected = [
        (vec![1], given_up()),
        (vec![2, 3], Outcome::Unsent),
        (vec![4], Outcome::Unsent),
        (vec![5], Outcome::Unsent),
    ];
    assert_eq!(reports(&mut engine, 4), expected);
}

/// Reports, and whether the bell was rung since the last time.
struct Desk {
    shared: Shared,
    bell: UnixStream,
}

impl Desk {
    fn new() -> Self {
        let (bell, ring) = UnixStream::pair().unwrap();
        bell.set_nonblocking(true).unwrap();
        let shared = Shared {
            reports: Mutex::default(),
            patience: AtomicUsize::new(1),
            brakes: AtomicUsize::new(0),
            ring,
            slow_requests: AtomicUsize::new(0),
            slow_letters: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        };
        Self { shared, bell }
    }

    fn report(&mut self) -> bool {
        let parcel = Parcel {
            letters: Vec::new(),
            turn: 1,
            repeat: None,
        };
        self.shared.report(Report {
            parcel,
            outcome: Outcome::Unsent,
            status: None,
        });
        self.rang()
    }

    fn rang(&mut self) -> bool {
        let mut bytes = [0; 64];
        matches!(self.bell.read(&mut bytes), Ok(1..))
    }
}

#[test]
fn the_bell_rings_when_there_are_as_many_as_were_asked_for() {
    let mut desk = Desk::new();
    assert!(desk.report());
    assert!(!desk.report(), "there is one already");
    desk.shared.lock().clear();
    desk.shared.ring_at(3);
    assert!(!desk.rang());
    let rang: Vec<bool> = (0..4).map(|_| desk.report()).collect();
    assert_eq!(rang, [false, false, true, false]);
    // They came before anybody asked.
    desk.shared.ring_at(2);
    assert!(desk.rang());
    desk.shared.ring_at(5);
    assert!(!desk.rang());
    assert!(desk.report());
}
