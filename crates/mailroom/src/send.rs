//! `mailroom send`: delivers the mail of any number of databases, each on a thread of its own.
//!
//! | module | owns |
//! |---|---|
//! | `database` | one database: its connection, its job runner, its back-off |
//! | `collector` | the other tasks of the worker: collecting, answering requests, purging |
//! | `watch` | when to ask for due mail |
//! | `outage` | back-off while a database cannot be used |
//! | `once` | when a sender with `--once` ends |
//! | `plan` | the parameters of a database's thread |
//! | `host` | the process, as the job runner sees it |

mod collector;
mod database;
mod host;
mod once;
mod outage;
mod plan;
mod watch;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mailroom_core::transport::config;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch::Sender;

use self::database::{Database, START_RETRY};
use self::plan::{Ending, Plan};
use crate::arguments::Send;
use crate::conninfo::{Environment, Target};
use crate::control::{Control, ControlState};
use crate::log::Log;
use crate::service::Service;

/// Open files of the program besides those of the databases.
const OWN_FILES: usize = 32;
/// How often it is checked whether a thread has ended.
const TICK: Duration = Duration::from_millis(200);

/// A name that no other sender has or had, on any machine.
fn new_claimant() -> String {
    let node = rustix::system::uname();
    let host: String = node.nodename().to_string_lossy().chars().take(64).collect();
    let random = RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now()));
    format!("mailroom send/{host}/{random:016x}")
}

/// Delivers until a signal stops the program.
pub fn run(arguments: &Send) -> ExitCode {
    let log = Log::new(arguments.format);
    match start(arguments, &log) {
        Ok(mut program) => program.run(),
        Err(code) => code,
    }
}

/// The signals that the program handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// SIGUSR1, which is ignored instead of ending the process.
    user: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }
}

struct Program {
    log: Log,
    runtime: tokio::runtime::Runtime,
    signals: Signals,
    control: Sender<ControlState>,
    service: Service,
    threads: Vec<JoinHandle<Ending>>,
    /// The databases for which the system has refused a thread, by their names in the log.
    unstarted: Vec<(String, Plan)>,
    start_at: Instant,
    once: bool,
}

fn start(arguments: &Send, log: &Log) -> Result<Program, ExitCode> {
    let refuse = |code: u8, message: String, hint: String| {
        log.warn(&message, "", &hint);
        ExitCode::from(code)
    };
    let targets = parse_targets(&arguments.databases)
        .map_err(|message| refuse(2, message, "See mailroom --help.".to_owned()))?;
    // An error in the file ends the program at the start. Later, an error keeps the previous transports in force.
    config::load(&arguments.transports)
        .map_err(|error| refuse(1, error.to_string(), error.hint()))?;
    let system =
        |error: std::io::Error| refuse(1, format!("the system refuses: {error}"), String::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system)?;
    let signals = {
        let _guard = runtime.enter();
        Signals::new().map_err(system)?
    };
    let (sender, control) = Control::new();
    let files = allow_files().saturating_sub(OWN_FILES) / targets.len().max(1);
    let labels = labels(&targets);
    let mut unstarted = Vec::new();
    for (target, label) in targets.into_iter().zip(labels) {
        let plan = Plan {
            target,
            transports: arguments.transports.clone(),
            log: log.of_database(&label),
            control: control.clone(),
            poll: arguments.poll,
            listen: arguments.listen,
            once: arguments.once,
            files,
        };
        unstarted.push((label, plan));
    }
    Ok(Program {
        log: log.clone(),
        runtime,
        signals,
        control: sender,
        service: Service::of_environment(),
        threads: Vec::new(),
        unstarted,
        start_at: Instant::now(),
        once: arguments.once,
    })
}

/// Starts the thread of a database.
///
/// # Errors
/// If the system refuses it.
fn spawn(label: &str, plan: Plan) -> std::io::Result<JoinHandle<Ending>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new().name(label.to_owned());
    thread.spawn(move || Database::new(plan, runtime).run())
}

/// The connection parameters of the databases, or why one of them has none.
fn parse_targets(databases: &[String]) -> Result<Vec<Target>, String> {
    let environment = Environment::of_process();
    let target = |(index, given): (usize, &String)| {
        Target::parse(given, &environment)
            .map_err(|error| format!("database {}: {error}", index + 1))
    };
    databases.iter().enumerate().map(target).collect()
}

/// The names of the databases in the log; with their hosts if the names alone are not unique.
fn labels(targets: &[Target]) -> Vec<String> {
    let names: HashSet<&str> = targets.iter().map(Target::database).collect();
    let is_enough = names.len() == targets.len();
    let label = |target: &Target| match is_enough {
        true => target.database().to_owned(),
        false => target.label(),
    };
    targets.iter().map(label).collect()
}

/// Raises the limit of open files as far as possible, and returns it.
fn allow_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(1 << 20).min(1 << 20);
    let current = limit.current.unwrap_or(wanted);
    if current >= wanted {
        return usize::try_from(wanted).unwrap_or(usize::MAX);
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    let got = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => wanted,
        Err(_) => current,
    };
    usize::try_from(got).unwrap_or(usize::MAX)
}

/// Why the program woke up.
enum Woken {
    Stop,
    Reload,
    Nothing,
    Tick,
}

impl Program {
    fn run(&mut self) -> ExitCode {
        self.service.tell("READY=1");
        let tick = self.service.watchdog_interval().unwrap_or(TICK).min(TICK);
        let mut watchdog_at = Instant::now();
        let mut is_stopping = false;
        loop {
            if !is_stopping {
                self.start_threads();
            }
            match self.wait(tick) {
                Woken::Stop if is_stopping => {
                    self.log.warn("mailroom send ends at once", "", "");
                    return ExitCode::from(1);
                }
                Woken::Stop => {
                    is_stopping = true;
                    self.service.tell("STOPPING=1");
                    self.control.send_modify(|state| state.stop = true);
                }
                Woken::Reload => {
                    self.control.send_modify(|state| state.reloads += 1);
                }
                Woken::Nothing | Woken::Tick => {}
            }
            let ended = self.threads.iter().filter(|thread| thread.is_finished());
            let ended = ended.count();
            if ended == self.threads.len() && (is_stopping || self.unstarted.is_empty()) {
                break;
            }
            if ended > 0 && !is_stopping && !self.once {
                // No thread ends by itself: it has panicked. The service manager starts the program again.
                self.log.warn("a thread has ended unexpectedly", "", "");
                is_stopping = true;
                self.control.send_modify(|state| state.stop = true);
            }
            if let Some(interval) = self.service.watchdog_interval()
                && watchdog_at.elapsed() >= interval
            {
                watchdog_at = Instant::now();
                self.service.tell("WATCHDOG=1");
            }
        }
        self.exit_code()
    }

    /// Starts the threads that are not started yet. What the system refuses is tried again later.
    fn start_threads(&mut self) {
        if self.unstarted.is_empty() || Instant::now() < self.start_at {
            return;
        }
        for (label, plan) in std::mem::take(&mut self.unstarted) {
            match spawn(&label, plan.clone()) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    plan.log.warn(
                        &format!("the system refuses a thread: {error}"),
                        "",
                        &format!("It is tried again in {} s.", START_RETRY.as_secs()),
                    );
                    self.unstarted.push((label, plan));
                }
            }
        }
        self.start_at = Instant::now() + START_RETRY;
    }

    fn wait(&mut self, tick: Duration) -> Woken {
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            tokio::select! {
                _ = signals.terminate.recv() => Woken::Stop,
                _ = signals.interrupt.recv() => Woken::Stop,
                _ = signals.hang_up.recv() => Woken::Reload,
                _ = signals.user.recv() => Woken::Nothing,
                () = tokio::time::sleep(tick) => Woken::Tick,
            }
        })
    }

    /// The worst exit code of the threads.
    fn exit_code(&mut self) -> ExitCode {
        let endings = self.threads.drain(..).map(|thread| match thread.join() {
            Ok(Ending::Done) => 0,
            Ok(Ending::Left) => 3,
            Ok(Ending::Unreached) | Err(_) => 1,
        });
        let codes: HashSet<u8> = endings.collect();
        let worst = [1, 3].into_iter().find(|code| codes.contains(code));
        ExitCode::from(worst.unwrap_or(0))
    }
}
