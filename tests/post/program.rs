//! `mailroom send` (in MAILROOM_SEND) instead of the worker, restarted when it ends, as by a service manager.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, eventually};

/// The program. When its process ends, another one is started, unless it was stopped.
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
    /// Whether no other process is started for now.
    is_held: bool,
    /// Whether the keeper must end.
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

    /// The id of its process, if there is one.
    pub fn pid(&self) -> Option<i32> {
        self.shared.state.lock().unwrap().pid
    }

    /// Sends a signal to its process, if there is one.
    pub fn signal(&self, name: &str) {
        if let Some(pid) = self.pid() {
            let command = format!("kill -{name} {pid}");
            // The process may have ended already.
            let _ = Command::new("sh").args(["-c", &command]).status().unwrap();
        }
    }

    /// Stops it, and returns when its process has ended.
    pub fn stop(&self) {
        self.shared.state.lock().unwrap().is_held = true;
        self.signal("TERM");
        eventually("mailroom send to stop", || {
            self.pid().is_none().then_some(())
        });
    }

    /// Starts it again after [`Self::stop`].
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

/// Starts one process after the other, until the program is dropped.
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
