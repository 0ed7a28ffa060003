//! The transports whose events are received, as the transports file has them.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use mailroom_core::transport::config::{self, ConfigError, TransportEvents};

use crate::log::Log;

/// The file, and what it said when it was last read without an error.
pub struct Transports {
    path: PathBuf,
    known: RefCell<Vec<Rc<TransportEvents>>>,
}

impl Transports {
    /// Reads the file.
    ///
    /// # Errors
    /// The first error in it.
    pub fn load(path: PathBuf) -> Result<Self, ConfigError> {
        let known = RefCell::new(read(&path)?);
        Ok(Self { path, known })
    }

    /// Reads the file again. An error in it changes nothing.
    pub fn reload(&self, log: &Log) {
        match read(&self.path) {
            Ok(known) => {
                *self.known.borrow_mut() = known;
                self.tell(log);
            }
            Err(error) => log.warn(
                &format!("{error}; the transports read before stay in force"),
                "",
                &error.hint(),
            ),
        }
    }

    /// Writes to the log whose events are received.
    pub fn tell(&self, log: &Log) {
        let known = self.known.borrow();
        let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
        if names.is_empty() {
            log.warn(
                "no transport of the transports file has a secret for events",
                "Each request is answered with 404.",
                "Add event_secret, which the provider shows beside the webhook, or event_topic for ses.",
            );
        } else {
            let names = names.join(", ");
            log.log(&format!("mailroom receive takes events of {names}"));
        }
    }

    /// The transport of this name, if its events are received.
    pub fn find(&self, name: &str) -> Option<Rc<TransportEvents>> {
        let known = self.known.borrow();
        known.iter().find(|one| one.name == name).map(Rc::clone)
    }
}

fn read(path: &std::path::Path) -> Result<Vec<Rc<TransportEvents>>, ConfigError> {
    let all = config::load_events(path)?.into_iter();
    let received = all.filter(|one| one.receiver.is_some());
    Ok(received.map(Rc::new).collect())
}
