//! `mailroom send` (in MAILROOM_SEND) in the worker's place: kept running, as a service manager would.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, eventually};

/// The program. When its process ends, the next one is started, unless it was told to stop.
pub struct Program {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    log: PathBuf,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pid: Option<i32>,
    /// No other process is started.
    is_held: bool,
    /// The keeper is to end.
    has_ended: bool,
}

impl Program {
    /// Starts it for the database `app` of this cluster, as a member of mailroom_sender.
    pub fn start(cluster: &Cluster) -> Self {
        cluster
            .connect("app")
            .batch_execute("CREATE ROLE sender LOGIN IN ROLE mailroom_sender")
            .unwrap();
        let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
            panic!("MAILROOM_SEND is not set: run the tests with `make test`, which builds it")
        });
        let log = cluster.scratch().join("send.log");
        let file = append(&log);
        let mut command = cluster.as_server_user(Command::new(program));
        command
            .arg("send")
            .args(["--database", "dbname=app user=sender", "--transports"])
            .arg(cluster.data().join(FILE))
            .stderr(file);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let keeper = std::thread::spawn(move || keep(command, &theirs));
        Self {
            shared,
            keeper: Some(keeper),
            log,
        }
    }

    /// Its process, if there is one now.
    pub fn pid(&self) -> Option<i32> {
        self.shared.state.lock().unwrap().pid
    }

    /// Sends a signal to its process, if there is one.
    pub fn signal(&self, name: &str) {
        if let Some(pid) = self.pid() {
            let command = format!("kill -{name} {pid}");
            // It may have ended by itself meanwhile.
            let _ = Command::new("sh").args(["-c", &command]).status().unwrap();
        }
    }

    /// Has it stop, and returns when it has.
    pub fn stop(&self) {
        self.shared.state.lock().unwrap().is_held = true;
        self.signal("TERM");
        eventually("mailroom send to stop", || {
            self.pid().is_none().then_some(())
        });
    }

    /// Starts it again after a stop.
    pub fn resume(&self) {
        self.shared.state.lock().unwrap().is_held = false;
        self.shared.changed.notify_all();
    }

    /// What all of its processes have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap().has_ended = true;
        self.signal("KILL");
        self.shared.changed.notify_all();
        let _ = self.keeper.take().map(JoinHandle::join);
        if std::thread::panicking() {
            eprintln!("--- the log of mailroom send ---\n{}", self.log());
        }
    }
}

fn append(path: &PathBuf) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap()
}

/// Starts one process after the other.
fn keep(mut command: Command, shared: &Shared) {
    loop {
        let mut state = shared.state.lock().unwrap();
        while state.is_held && !state.has_ended {
            state = shared.changed.wait(state).unwrap();
        }
        if state.has_ended {
            return;
        }
        let mut child = command.spawn().unwrap();
        state.pid = Some(child.id().try_into().unwrap());
        drop(state);
        child.wait().unwrap();
        shared.state.lock().unwrap().pid = None;
    }
}
