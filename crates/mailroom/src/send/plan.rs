//! The parameters of a database's thread, and how it ends.

use std::path::PathBuf;
use std::time::Duration;

use crate::conninfo::Target;
use crate::control::Control;
use crate::log::Log;

/// The maximum poll interval with `--once`.
const ONCE_POLL: Duration = Duration::from_millis(200);

/// How a thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was stopped, or no due mail is left.
    Done,
    /// Mail is due that cannot be sent now.
    Left,
    /// The database cannot be reached.
    Unreached,
}

/// The parameters of a thread.
#[derive(Clone)]
pub struct Plan {
    /// The connection parameters.
    pub target: Target,
    /// The transports file.
    pub transports: PathBuf,
    /// The log of this database.
    pub log: Log,
    /// What signals ask for.
    pub control: Control,
    /// The maximum time between two polls.
    pub poll: Duration,
    /// Whether to use notifications.
    pub listen: bool,
    /// End when no mail is due.
    pub once: bool,
    /// Maximum open files.
    pub files: usize,
}

impl Plan {
    /// Writes a warning if the password file is ignored.
    pub fn warn_of_passfile(&self) {
        self.target.warn_of_passfile(&self.log);
    }

    /// The time between two polls.
    pub fn poll_interval(&self) -> Duration {
        if self.once {
            ONCE_POLL.min(self.poll)
        } else {
            self.poll
        }
    }

    /// The longest that a token may wait for a full batch; with `--once` it does not wait.
    pub fn max_batch_timeout(&self) -> Duration {
        if self.once {
            Duration::ZERO
        } else {
            Duration::MAX
        }
    }
}
