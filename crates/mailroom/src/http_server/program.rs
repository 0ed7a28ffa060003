//! A program that serves until a signal stops it.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch::Sender;
use tokio::task::{JoinHandle, LocalSet};

use super::Handler;
use crate::control::{Control, ControlState};
use crate::log::Log;
use crate::service::Service;
use crate::signals::{Asked, Signals};

/// How often the program wakes up without a watchdog.
const TICK: Duration = Duration::from_secs(60);

/// Serves on this address, on this thread, until a signal stops the program; `name` is the command, for the log.
pub fn run<H: Handler>(name: &'static str, listen: SocketAddr, log: &Log, handler: H) -> ExitCode {
    match start(name, listen, log, handler) {
        Ok(code) | Err(code) => code,
    }
}

fn start<H: Handler>(
    name: &'static str,
    listen: SocketAddr,
    log: &Log,
    handler: H,
) -> Result<ExitCode, ExitCode> {
    let refuse = |message: String, hint: &str| {
        log.warn(&message, "", hint);
        ExitCode::from(1)
    };
    let system = |error: std::io::Error| refuse(format!("the system refuses: {error}"), "");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system)?;
    LocalSet::new().block_on(&runtime, async {
        let signals = Signals::new().map_err(system)?;
        // Before the databases are asked: requests wait in the queue of the system.
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            let what = format!("cannot listen on {listen}: {error}");
            refuse(what, "Name another address in --listen.")
        })?;
        let (control, _) = Control::new();
        let program = Program {
            name,
            log: log.clone(),
            handler: Rc::new(handler),
            signals,
            control,
            service: Service::of_environment(),
        };
        Ok(program.run(listener).await)
    })
}

struct Program<H> {
    name: &'static str,
    log: Log,
    handler: Rc<H>,
    signals: Signals,
    control: Sender<ControlState>,
    service: Service,
}

impl<H: Handler> Program<H> {
    async fn run(mut self, listener: TcpListener) -> ExitCode {
        if let Some(code) = self.check().await {
            return code;
        }
        if let Ok(address) = listener.local_addr() {
            self.log.log(&format!("{} listens on {address}", self.name));
        }
        let (handler, log) = (Rc::clone(&self.handler), self.log.clone());
        let control = Control::of(&self.control);
        let server = tokio::task::spawn_local(super::run(listener, handler, log, control));
        self.service.tell("READY=1");
        let code = self.attend(server).await;
        self.handler.close().await;
        code
    }

    /// Gets ready; returns the exit code if the program ends.
    async fn check(&mut self) -> Option<ExitCode> {
        let handler = Rc::clone(&self.handler);
        let signals = &mut self.signals;
        let stopped = async {
            loop {
                match signals.next().await {
                    Asked::Stop => return,
                    Asked::Reload => handler.reload(),
                    Asked::Nothing => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = stopped => Some(ExitCode::SUCCESS),
            may_serve = self.handler.check() => (!may_serve).then(|| ExitCode::from(1)),
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
                        self.log.log(&format!("{} stopped", self.name));
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
                    let what = format!("{} ends at once", self.name);
                    self.log.warn(&what, "", "");
                    return ExitCode::from(1);
                }
                Asked::Stop => {
                    is_stopping = true;
                    self.service.tell("STOPPING=1");
                    self.control.send_modify(|state| state.stop = true);
                }
                Asked::Reload => self.handler.reload(),
                Asked::Nothing => {}
            }
        }
    }
}
