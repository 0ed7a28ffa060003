//! The process, as the job runner of one database sees it.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use mailroom_core::deliver::store::{Host, LogLine};
use mailroom_core::transport::config::{self, ConfigError, TransportConfig};
use tokio::runtime::Runtime;

use super::plan::Plan;
use crate::control::Control;
use crate::log::Log;
use crate::readable_fd::ReadableFd;

/// Open files of a database's thread besides the connections of transports.
const OWN_FILES: usize = 32;

/// The process, for one database.
pub struct Process {
    runtime: Rc<Runtime>,
    control: Control,
    log: Log,
    /// The transports file.
    path: PathBuf,
    /// The name of the database, as the server reports it.
    database: String,
    lease: Rc<Cell<Duration>>,
    /// Maximum open files of this database's thread.
    files: usize,
}

impl Process {
    /// The process for a database, whose settings determine `lease`.
    pub fn new(
        plan: &Plan,
        database: &str,
        runtime: Rc<Runtime>,
        lease: Rc<Cell<Duration>>,
    ) -> Self {
        Self {
            runtime,
            control: plan.control.clone(),
            log: plan.log.clone(),
            path: plan.transports.clone(),
            database: database.to_owned(),
            lease,
            files: plan.files,
        }
    }
}

/// Starts a delivery thread.
pub fn spawn(body: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("deliverer".to_owned())
        .spawn(body)
}

impl Host for Process {
    fn load(&self) -> Result<Vec<TransportConfig>, ConfigError> {
        let mut transports = config::load(&self.path)?;
        transports.retain(|transport| transport.serves(&self.database));
        fit(&mut transports, self.files);
        Ok(transports)
    }

    fn log(&self, line: &LogLine) {
        self.log.line(line);
    }

    fn stop_requested(&self) -> bool {
        self.control.state().stop
    }

    fn lease(&self) -> Duration {
        self.lease.get()
    }

    fn wait(&self, limit: Duration, jobs_fd: RawFd) {
        self.runtime.block_on(async {
            let Ok(fd) = ReadableFd::new(jobs_fd) else {
                return tokio::time::sleep(limit.min(Duration::from_millis(50))).await;
            };
            let _ = tokio::time::timeout(limit, fd.readable()).await;
        });
    }
}

/// Reduces the concurrency of all transports in proportion, so that their connections fit the limit of open files.
fn fit(transports: &mut [TransportConfig], files: usize) {
    let wanted: usize = transports.iter().map(|one| one.delivery.concurrency).sum();
    let files = files.saturating_sub(OWN_FILES);
    if wanted <= files {
        return;
    }
    for transport in transports {
        let share = transport.delivery.concurrency * files / wanted.max(1);
        transport.delivery.concurrency = share.max(1);
    }
}
