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
use tokio::sync::watch::Sender;

use self::database::{Database, START_RETRY};
use self::plan::{Ending, Plan};
use crate::arguments::Send;
use crate::conninfo::{Environment, labels, parse_all};
use crate::control::{Control, ControlState};
use crate::log::Log;
use crate::service::Service;
use crate::signals::{Asked, Signals};

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
    let targets = parse_all(&arguments.databases, &Environment::of_process())
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
                Some(Asked::Stop) if is_stopping => {
                    self.log.warn("mailroom send ends at once", "", "");
                    return ExitCode::from(1);
                }
                Some(Asked::Stop) => {
                    is_stopping = true;
                    self.service.tell("STOPPING=1");
                    self.control.send_modify(|state| state.stop = true);
                }
                Some(Asked::Reload) => {
                    self.control.send_modify(|state| state.reloads += 1);
                }
                Some(Asked::Nothing) | None => {}
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

    /// Waits for a signal, at most for this time.
    fn wait(&mut self, tick: Duration) -> Option<Asked> {
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            tokio::select! {
                asked = signals.next() => Some(asked),
                () = tokio::time::sleep(tick) => None,
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
