//! `mailroom receive`: an HTTP endpoint for the webhooks of providers.
//!
//! | module | owns |
//! |---|---|
//! | `endpoint` | the answer to each request |
//! | `route` | paths and methods |
//! | `transports` | the transports file: how requests are verified |
//! | `unsubscribe` | the page behind the links of lists, and what its button does |
//! | `sns` | certificates and confirmations of Amazon SNS |
//! | `database` | one database: its connection, its outages |
//! | `connection` | the transactions of a connection |
//!
//! It listens on the internet, so it holds nothing that a stranger may want: its role reads no mail, and it reads the secrets
//! for events only. It runs on one thread.

pub mod connection;
mod database;
mod endpoint;
mod route;
mod sns;
mod transports;
mod unsubscribe;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch::Sender;
use tokio::task::{JoinHandle, LocalSet};

use self::database::Database;
use self::endpoint::Endpoint;
use self::transports::Transports;
use crate::arguments::Receive;
use crate::conninfo::{Environment, labels, parse_all};
use crate::control::{Control, ControlState};
use crate::http_server;
use crate::log::Log;
use crate::service::Service;
use crate::signals::{Asked, Signals};

/// How often the program wakes up without a watchdog.
const TICK: Duration = Duration::from_secs(60);

/// Receives until a signal stops the program.
pub fn run(arguments: &Receive) -> ExitCode {
    let log = Log::new(arguments.format);
    match start(arguments, &log) {
        Ok(code) | Err(code) => code,
    }
}

fn start(arguments: &Receive, log: &Log) -> Result<ExitCode, ExitCode> {
    let refuse = |code: u8, message: String, hint: String| {
        log.warn(&message, "", &hint);
        ExitCode::from(code)
    };
    let environment = Environment::of_process().for_application("mailroom receive");
    let targets = parse_all(&arguments.databases, &environment)
        .map_err(|message| refuse(2, message, "See mailroom --help.".to_owned()))?;
    // An error in the file ends the program at the start. Later, an error keeps the previous transports in force.
    let transports = Transports::load(arguments.transports.clone())
        .map_err(|error| refuse(1, error.to_string(), error.hint()))?;
    let system =
        |error: std::io::Error| refuse(1, format!("the system refuses: {error}"), String::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system)?;
    let labels = labels(&targets);
    let databases = targets.into_iter().zip(labels);
    let databases = databases.map(|(target, label)| {
        let log = log.of_database(&label);
        Rc::new(Database::new(target, log))
    });
    let endpoint = Endpoint::new(log.clone(), transports, databases.collect());
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let signals = Signals::new().map_err(system)?;
        // Before the databases are asked: requests wait in the queue of the system.
        let listener = TcpListener::bind(arguments.listen).await.map_err(|error| {
            let what = format!("cannot listen on {}: {error}", arguments.listen);
            refuse(1, what, "Name another address in --listen.".to_owned())
        })?;
        let (control, _) = Control::new();
        let program = Program {
            log: log.clone(),
            endpoint: Rc::new(endpoint),
            signals,
            control,
            service: Service::of_environment(),
        };
        Ok(program.run(listener).await)
    })
}

struct Program {
    log: Log,
    endpoint: Rc<Endpoint>,
    signals: Signals,
    control: Sender<ControlState>,
    service: Service,
}

impl Program {
    async fn run(mut self, listener: TcpListener) -> ExitCode {
        if let Some(code) = self.check().await {
            return code;
        }
        if let Ok(address) = listener.local_addr() {
            self.log
                .log(&format!("mailroom receive listens on {address}"));
        }
        let (endpoint, log) = (Rc::clone(&self.endpoint), self.log.clone());
        let control = Control::of(&self.control);
        let server = tokio::task::spawn_local(http_server::run(listener, endpoint, log, control));
        self.service.tell("READY=1");
        let code = self.attend(server).await;
        self.endpoint.close().await;
        code
    }

    /// Connects to the databases; returns the exit code if the program ends.
    async fn check(&mut self) -> Option<ExitCode> {
        let endpoint = Rc::clone(&self.endpoint);
        let signals = &mut self.signals;
        let stopped = async {
            loop {
                match signals.next().await {
                    Asked::Stop => return,
                    Asked::Reload => endpoint.reload(),
                    Asked::Nothing => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = stopped => Some(ExitCode::SUCCESS),
            may_report = self.endpoint.check() => (!may_report).then(|| ExitCode::from(1)),
        }
    }

    /// Does what signals ask for until the server has ended; returns the exit code.
    async fn attend(&mut self, mut server: JoinHandle<()>) -> ExitCode {
        let tick = self.service.watchdog_interval().unwrap_or(TICK);
        let mut is_stopping = false;
        loop {
            let asked = tokio::select! {
                ended = &mut server => {
                    if is_stopping && ended.is_ok() {
                        self.log.log("mailroom receive stopped");
                        return ExitCode::SUCCESS;
                    }
                    // It has panicked. The service manager starts the program again.
                    self.log.warn("the server has ended unexpectedly", "", "");
                    return ExitCode::from(1);
                }
                asked = self.signals.next() => asked,
                () = tokio::time::sleep(tick) => Asked::Nothing,
            };
            if self.service.watchdog_interval().is_some() {
                self.service.tell("WATCHDOG=1");
            }
            match asked {
                Asked::Stop if is_stopping => {
                    self.log.warn("mailroom receive ends at once", "", "");
                    return ExitCode::from(1);
                }
                Asked::Stop => {
                    is_stopping = true;
                    self.service.tell("STOPPING=1");
                    self.control.send_modify(|state| state.stop = true);
                }
                Asked::Reload => self.endpoint.reload(),
                Asked::Nothing => {}
            }
        }
    }
}
