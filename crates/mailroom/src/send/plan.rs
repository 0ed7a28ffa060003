//! What a database's thread is to do, and how it ended.

use std::path::PathBuf;
use std::time::Duration;

use crate::conninfo::Target;
use crate::control::Control;
use crate::log::Log;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was told to stop, or nothing that is due is left.
    Done,
    /// Mail is due that could not be sent now.
    Left,
    /// The database could not be reached.
    Unreached,
}

/// What a thread is to do.
#[derive(Clone)]
pub struct Plan {
    /// Where the database is.
    pub target: Target,
    /// The transports file.
    pub transports: PathBuf,
    /// That of this database.
    pub log: Log,
    /// What signals asked for.
    pub control: Control,
    /// How often to ask for due mail at least.
    pub poll: Duration,
    /// Use notifications.
    pub listen: bool,
    /// End when nothing is due.
    pub once: bool,
    /// How many files it may have open.
    pub files: usize,
}
