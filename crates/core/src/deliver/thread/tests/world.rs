//! Receivers on this machine, and a runner with an outbox in memory.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU16;
use std::sync::{Condvar, atomic::AtomicUsize};

use super::*;
use crate::deliver::exchange::Claimed;
use crate::deliver::fixture::mail;
use crate::deliver::mail::Mail;
use crate::deliver::settlements::FailedMail;
use crate::transport::config;

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a receiver does with requests.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    status: AtomicU16,
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// Answers wait until this is true.
    open: Mutex<bool>,
    opened: Condvar,
}

impl Receiver {
    /// One that answers all requests with this status.
    pub(super) fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(State {
            status: AtomicU16::new(status),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            open: Mutex::new(true),
            opened: Condvar::new(),
        });
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::clone(&state),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                std::thread::spawn(move || state.serve(stream));
            }
        });
        receiver
    }

    pub(super) fn answer(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    /// Connections that were made.
    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Requests that came.
    pub(super) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Answers nothing until [`Self::open`].
    pub(super) fn close(&self) {
        *self.state.open.lock().unwrap() = false;
    }

    pub(super) fn open(&self) {
        *self.state.open.lock().unwrap() = true;
        self.state.opened.notify_all();
    }
}

impl State {
    fn serve(&self, stream: TcpStream) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let mut reader = BufReader::new(&stream);
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            self.requests.fetch_add(1, Ordering::SeqCst);
            let open = self.open.lock().unwrap();
            drop(self.opened.wait_while(open, |open| !*open).unwrap());
            let status = self.status.load(Ordering::SeqCst);
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
            if (&stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// A transports file of webhooks: name, where it goes, and further lines.
pub(super) fn file(webhooks: &[(&str, SocketAddr, &str)]) -> String {
    let one = |(name, address, lines): &(&str, SocketAddr, &str)| {
        format!(
            "[transports.{name}]\nprovider = \"webhook\"\nendpoint = \"http://{address}/\"\n\
             secret = \"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"\nallowed_networks = [\"127.0.0.1\"]\n{lines}\n"
        )
    };
    webhooks.iter().map(one).collect()
}

/// A claim, or an attempt at one: of which transport, and what was paused then.
pub(super) type Claim = (Arc<str>, Vec<(Arc<str>, Duration)>);

/// The runner of a thread.
pub(super) struct TestRunner {
    pub(super) thread: DeliveryThread,
    /// By transport.
    pub(super) waiting: BTreeMap<String, VecDeque<Mail>>,
    pub(super) sent: BTreeMap<String, usize>,
    pub(super) failed: BTreeMap<String, usize>,
    /// The recipients that were refused, of each mail that was sent without some.
    pub(super) refused: Vec<String>,
    /// Mails that failed for good, and why.
    pub(super) ended: Vec<(i64, String)>,
    pub(super) claims: Vec<Claim>,
    pub(super) log: Vec<(Arc<str>, LogEvent)>,
    /// How often it was asked for the settings.
    pub(super) asked: usize,
    /// What the file says when it is asked; `None` when it cannot be read.
    pub(super) file: Option<String>,
    /// It does not answer when asked for the settings.
    pub(super) is_slow_to_configure: bool,
    /// For how long a transport has to be paused until its mail falls back on the one that claims.
    pub(super) fallback_after: Duration,
    next_id: i64,
}

impl TestRunner {
    pub(super) fn new(file: String) -> Self {
        let thread = DeliveryThread::start(|body| std::thread::Builder::new().spawn(body)).unwrap();
        let runner = Self {
            thread,
            waiting: BTreeMap::new(),
            sent: BTreeMap::new(),
            failed: BTreeMap::new(),
            refused: Vec::new(),
            ended: Vec::new(),
            claims: Vec::new(),
            log: Vec::new(),
            asked: 0,
            file: Some(file),
            is_slow_to_configure: false,
            fallback_after: Duration::MAX,
            next_id: 1,
        };
        runner.configure();
        runner
    }

    /// Reads the file.
    pub(super) fn configure(&self) {
        match &self.file {
            Some(file) => {
                let transports = config::parse(file, std::path::Path::new(""));
                self.thread
                    .configure(transports.unwrap_or_else(|error| panic!("{error}")));
            }
            None => self.thread.keep_config(),
        }
    }

    /// Reads the file if that was asked for since the last time.
    pub(super) fn configure_if_asked(&mut self) {
        if std::mem::take(&mut self.asked) > 0 {
            self.configure();
        }
    }

    pub(super) fn schedule(&mut self, transport: &str, count: usize) {
        let waiting = self.waiting.entry(transport.to_owned()).or_default();
        for _ in 0..count {
            waiting.push_back(mail(self.next_id));
            self.next_id += 1;
        }
        self.thread.mail_due(false);
    }

    /// Takes the jobs there are, without doing them.
    pub(super) fn exchanges(&mut self) -> Vec<Exchange> {
        let mut exchanges = Vec::new();
        for job in self.thread.take_jobs() {
            match job {
                Job::ReloadConfig => {
                    self.asked += 1;
                    if !self.is_slow_to_configure {
                        self.configure();
                    }
                }
                Job::Log(transport, event) => self.log.push((transport, event)),
                Job::Exchange(exchange) => exchanges.push(exchange),
            }
        }
        exchanges
    }

    pub(super) fn exchange(&mut self, exchange: Exchange) {
        let Exchange {
            transport,
            settlements,
            claim,
            paused,
        } = exchange;
        let name = transport.to_string();
        if let Some(claim) = claim {
            self.fall_back(&name, claim.mails as usize, &paused);
        }
        let released = &settlements.released;
        let failed = &settlements.failed;
        let waiting = self.waiting.entry(name.clone()).or_default();
        for claim in released {
            let mut mail = mail(claim.id);
            mail.message.attempts = claim.attempts;
            waiting.push_back(mail);
        }
        for FailedMail { claim, attempt } in failed {
            if attempt.permanent {
                self.ended.push((claim.id, attempt.reason.clone()));
                continue;
            }
            let mut mail = mail(claim.id);
            mail.message.attempts = claim.attempts + 1;
            mail.ambiguous_attempts = attempt.is_ambiguous().into();
            waiting.push_back(mail);
        }
        let refused = settlements
            .sent
            .iter()
            .filter_map(|one| one.refused.clone());
        self.refused.extend(refused);
        *self.sent.entry(name.clone()).or_default() += settlements.sent.len();
        *self.failed.entry(name).or_default() += failed.len();
        let claimed = claim.map(|claim| {
            self.claims.push((Arc::clone(&transport), paused));
            let count = waiting.len().min(claim.mails as usize);
            let claimed = Claimed {
                mails: waiting.drain(..count).collect(),
                ..Claimed::default()
            };
            (claim, claimed)
        });
        let exchanged = ExchangeResult {
            settled: *settlements,
            claimed,
            ..ExchangeResult::default()
        };
        self.thread.exchanged(&transport, exchanged);
    }

    fn fall_back(&mut self, to: &str, most: usize, paused: &[(Arc<str>, Duration)]) {
        let mut moved = Vec::new();
        for (from, since) in paused {
            if *since >= self.fallback_after {
                let waiting = self.waiting.entry(from.to_string()).or_default();
                let count = waiting.len().min(most - moved.len());
                moved.extend(waiting.drain(..count));
            }
        }
        self.waiting.entry(to.to_owned()).or_default().extend(moved);
    }

    pub(super) fn turn(&mut self) {
        for exchange in self.exchanges() {
            self.exchange(exchange);
        }
    }

    /// Does what there is to do until this holds.
    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(
                began.elapsed() < DEADLINE,
                "{what}: {:?} {:?}",
                self.thread.statuses(),
                self.sent
            );
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Does what there is to do for so long.
    pub(super) fn pass(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn sent(&self, transport: &str) -> usize {
        self.sent.get(transport).copied().unwrap_or(0)
    }

    pub(super) fn waiting(&self, transport: &str) -> usize {
        self.waiting.get(transport).map_or(0, VecDeque::len)
    }

    pub(super) fn state(&self, transport: &str) -> Option<&'static str> {
        let statuses = self.thread.statuses();
        let status = statuses.iter().find(|(name, _)| &**name == transport);
        status.map(|(_, status)| status.state)
    }

    pub(super) fn names(&self) -> Vec<String> {
        let statuses = self.thread.statuses();
        statuses.iter().map(|(name, _)| name.to_string()).collect()
    }
}
