//! The process as the deliverer of one database sees it.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use mailroom_core::deliver::store::{Host, LogLine};
use mailroom_core::transport::config::{self, ConfigError, TransportConfig};
use tokio::runtime::Runtime;

use crate::control::Control;
use crate::log::Log;
use crate::readable_fd::ReadableFd;

/// Files besides the connections of transports that a database's thread may have open.
const OWN_FILES: usize = 32;

/// The process, for one database.
pub struct Process {
    pub(super) runtime: Rc<Runtime>,
    pub(super) control: Control,
    pub(super) log: Log,
    pub(super) path: PathBuf,
    /// By the server.
    pub(super) database: String,
    pub(super) lease: Rc<Cell<Duration>>,
    /// How many files this database's thread may have open.
    pub(super) files: usize,
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
        self.control.orders().stop
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

/// Shares what may be open among the transports, each by its concurrency.
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
