//! A database, and logging in to it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::connection::{Access, Connection, Failure, NotOpened};
use super::rights::Rights;
use crate::conninfo::Target;
use crate::log::{Log, Throttle};
use crate::session::connect::Refused;

/// Maximum number of attempts to log in at a time.
const TURNS: usize = 4;
/// How long an attempt waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(10);

/// A database that people log in to.
pub struct Database {
    target: Target,
    /// Turns of attempts to log in.
    turns: Semaphore,
    /// Lines about failures.
    failures: RefCell<Throttle>,
    /// Its name in paths and in the log.
    pub label: String,
    pub log: Log,
}

/// Why a role was not logged in: what the page says.
#[derive(Debug, Default)]
pub struct NotLoggedIn {
    pub message: String,
    pub hint: String,
    /// For the log only.
    pub reason: String,
    /// Whether it is not the role's fault, and may help to try again.
    pub is_outage: bool,
}

impl Database {
    pub fn new(target: Target, label: String, log: &Log) -> Self {
        Self {
            target,
            turns: Semaphore::new(TURNS),
            failures: RefCell::default(),
            log: log.of_database(&label),
            label,
        }
    }

    /// Waits for the turn of an attempt to log in; `None` if too many wait.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        timeout(TURN_TIME, self.turns.acquire()).await.ok()?.ok()
    }

    /// Writes a warning, at most one a minute.
    pub fn warn(&self, what: &str, reason: &str) {
        if let Some(left_out) = self.failures.borrow_mut().pass(Instant::now()) {
            self.log.warn_after(&format!("{what}: {reason}"), left_out);
        }
    }

    /// Connects as a role.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn open(&self, role: &str, password: &str) -> Result<Connection, NotOpened> {
        Connection::open(&self.target.of_role(role, password)).await
    }

    /// Logs a role in; returns what it may do.
    ///
    /// # Errors
    /// What the page says.
    pub async fn log_in(
        &self,
        role: &str,
        password: &Zeroizing<String>,
    ) -> Result<(Connection, Rc<Rights>), NotLoggedIn> {
        let opened = self.open(role, password).await;
        let connection = opened.map_err(|failure| not_opened(role, failure))?;
        let found = connection
            .transaction(Access::Read, async |statements| {
                Rights::find(statements).await
            })
            .await;
        let rights = match found {
            Ok((rights, _)) => rights,
            Err(failure) => return Err(not_found(&failure)),
        };
        // A pooler may log in as another.
        if rights.session_user != role {
            return Err(NotLoggedIn {
                message: format!("The server has logged \"{role}\" in as another role."),
                hint: "Name the server in --database, not a pooler that has a user of its own."
                    .to_owned(),
                reason: "the server has logged it in as another role".to_owned(),
                is_outage: false,
            });
        }
        if let Some(reason) = rights.objection() {
            return Err(objected(role, &rights, reason));
        }
        Ok((connection, Rc::new(rights)))
    }
}

/// What a stranger may learn: nothing about hosts, and the same for a role that does not exist.
fn not_opened(role: &str, failure: NotOpened) -> NotLoggedIn {
    match failure {
        NotOpened::Unsafe(Refused::NoPassword) => NotLoggedIn {
            message: format!("This server lets \"{role}\" in without a password from here."),
            hint: "Then anybody is anybody. Have a line with scram-sha-256 for this address in pg_hba.conf."
                .to_owned(),
            reason: "the server asks for no password".to_owned(),
            is_outage: false,
        },
        NotOpened::Unsafe(Refused::ClearText) => NotLoggedIn {
            message: "This server wants passwords in clear text, over a connection that others may read."
                .to_owned(),
            hint: "Have sslmode=verify-full in --database.".to_owned(),
            reason: "the server wants the password in clear text".to_owned(),
            is_outage: false,
        },
        NotOpened::Refused(error) => NotLoggedIn {
            message: "Role or password is wrong, or the role may not log in from here.".to_owned(),
            hint: String::new(),
            reason: error.to_string(),
            is_outage: false,
        },
        // PgBouncer says this of a wrong password, and of all else.
        NotOpened::Unusable(error) if error.sqlstate() == "08P01" => NotLoggedIn {
            message: "Role or password is wrong, or the database cannot be used now.".to_owned(),
            hint: String::new(),
            reason: error.to_string(),
            is_outage: false,
        },
        NotOpened::Unusable(error) => unusable(error.to_string()),
    }
}

/// The role has given its password, so it may learn why.
fn objected(role: &str, rights: &Rights, reason: &str) -> NotLoggedIn {
    let (message, hint) = match (rights.is_superuser, rights.is_member()) {
        (true, _) => (
            "Superusers do not log in here.".to_owned(),
            "Use a role that may do what is needed and no more: \
             CREATE ROLE ann LOGIN PASSWORD '…' IN ROLE mailroom_admin;",
        ),
        (false, false) => (
            format!("Role \"{role}\" is a member of none of mailroom's roles."),
            "GRANT mailroom_support, mailroom_monitor or mailroom_admin to it.",
        ),
        (false, true) => (
            format!("Role \"{role}\" sees nothing of this page."),
            "GRANT mailroom_support, mailroom_monitor or mailroom_admin to it.",
        ),
    };
    NotLoggedIn {
        message,
        hint: hint.to_owned(),
        reason: reason.to_owned(),
        is_outage: false,
    }
}

fn not_found(failure: &Failure) -> NotLoggedIn {
    let reason = match failure {
        Failure::Gone(error) | Failure::NotReached(error) | Failure::LoggedOut(error) => {
            error.to_string()
        }
        Failure::Statement(statement) => statement.message.clone(),
    };
    unusable(reason)
}

fn unusable(reason: String) -> NotLoggedIn {
    NotLoggedIn {
        message: "The database cannot be used now.".to_owned(),
        hint: String::new(),
        reason,
        is_outage: true,
    }
}
