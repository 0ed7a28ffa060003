//! Who is logged in.
//!
//! A session belongs to one database and is known by 256 random bits in a cookie, of which only the SHA-256 is kept. The
//! password stays in memory, so that a session outlives its connection: otherwise a failover would log out all people just
//! when they look.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::connection::{Access, Clock, Connection, Failure, NotOpened, Statements};
use super::database::Database;
use super::rights::Rights;
use crate::database_error::DatabaseError;

/// Maximum number of sessions. The one that was not used for the longest time makes room.
const SESSIONS: usize = 50;
/// Maximum number of sessions of a role.
const OF_ROLE: usize = 10;
/// How long a session lasts without a request.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long a session lasts.
const AGE: Duration = Duration::from_secs(12 * 3600);
/// How long the rights of a role are believed.
const RIGHTS_TIME: Duration = Duration::from_secs(60);

/// What the next page of a session says about what was done.
#[derive(Clone, Debug, Default)]
pub struct Notice {
    pub is_error: bool,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

/// A session.
pub struct Session {
    pub role: String,
    pub database: Rc<Database>,
    /// What forms carry, so that no other site can post them.
    pub csrf: String,
    password: Zeroizing<String>,
    began: Instant,
    used: Cell<Instant>,
    /// For the page at this path.
    notice: RefCell<Option<(String, Notice)>>,
    rights: RefCell<(Instant, Rc<Rights>)>,
    slot: Mutex<Option<Connection>>,
}

impl Session {
    /// Whether it has ended. One that sees no address and changes nothing may stay on a screen for ever.
    fn has_ended(&self) -> bool {
        let is_kiosk = self.rights.borrow().1.is_kiosk();
        self.used.get().elapsed() >= IDLE || (self.began.elapsed() >= AGE && !is_kiosk)
    }

    /// Whether a form has the token of this session.
    pub fn has_sent(&self, csrf: &str) -> bool {
        csrf.as_bytes().ct_eq(self.csrf.as_bytes()).into()
    }

    /// Leaves a notice for the page at this path, which may have a query.
    pub fn leave(&self, to: &str, notice: Notice) {
        let path = to.split_once('?').map_or(to, |(path, _)| path);
        self.notice.replace(Some((path.to_owned(), notice)));
    }

    /// The notice for the page at this path.
    pub fn take_notice(&self, path: &str) -> Option<Notice> {
        let mut notice = self.notice.borrow_mut();
        let (_, notice) = notice.take_if(|(of, _)| of == path)?;
        Some(notice)
    }

    /// What the role may see and do, as of a minute ago at most.
    ///
    /// # Errors
    /// The database cannot tell.
    pub async fn rights(&self) -> Result<Rc<Rights>, Failure> {
        let (at, rights) = self.rights.borrow().clone();
        if at.elapsed() < RIGHTS_TIME {
            return Ok(rights);
        }
        let found = self.run(Access::Read, async |statements| {
            Rights::find(statements).await
        });
        let (rights, _) = found.await?;
        if let Some(reason) = rights.objection() {
            return Err(Failure::LoggedOut(DatabaseError::lost(reason)));
        }
        let rights = Rc::new(rights);
        self.rights.replace((Instant::now(), Rc::clone(&rights)));
        Ok(rights)
    }

    /// Has the rights asked for again: a statement was refused for lack of one.
    pub fn doubt_rights(&self) {
        if let Some(before) = Instant::now().checked_sub(RIGHTS_TIME) {
            self.rights.borrow_mut().0 = before;
        }
    }

    /// Runs the statements of a request in a transaction. One request of a session runs at a time.
    ///
    /// # Errors
    /// It was rolled back, or that is not known because the connection was lost.
    pub async fn run<R>(
        &self,
        access: Access,
        body: impl AsyncFn(&Statements<'_>) -> Result<R, Failure>,
    ) -> Result<(R, Clock), Failure> {
        let mut slot = self.slot.lock().await;
        // A request that the browser gives up takes the connection with it.
        if let Some(connection) = slot.take().filter(Connection::is_usable) {
            match connection.transaction(access, &body).await {
                // It may have ended while it was not used.
                Err(Failure::Gone(_)) if access == Access::Read => {}
                Err(failure @ Failure::Gone(_)) => return Err(failure),
                done => {
                    *slot = Some(connection.after_use());
                    return done;
                }
            }
        }
        let opened = self.database.open(&self.role, &self.password).await;
        let connection = opened.map_err(|failure| match failure {
            NotOpened::Unusable(error) => Failure::NotReached(error),
            NotOpened::Refused(error) => Failure::LoggedOut(error),
            NotOpened::Unsafe(_) => {
                Failure::LoggedOut(DatabaseError::lost("the server asks for no password now"))
            }
        })?;
        let done = connection.transaction(access, &body).await;
        if !matches!(done, Err(Failure::Gone(_))) {
            *slot = Some(connection.after_use());
        }
        done
    }
}

/// All sessions.
#[derive(Default)]
pub struct Sessions(RefCell<HashMap<[u8; 32], Rc<Session>>>);

impl Sessions {
    /// Begins a session; returns the value of its cookie, or `None` if the system has no random bytes.
    pub fn begin(
        &self,
        database: Rc<Database>,
        role: &str,
        password: Zeroizing<String>,
        (connection, rights): (Connection, Rc<Rights>),
    ) -> Option<String> {
        let (id, csrf) = (random()?, random()?);
        let now = Instant::now();
        let session = Rc::new(Session {
            role: role.to_owned(),
            database,
            csrf,
            password,
            began: now,
            used: Cell::new(now),
            notice: RefCell::default(),
            rights: RefCell::new((now, rights)),
            slot: Mutex::new(Some(connection)),
        });
        let mut all = self.0.borrow_mut();
        all.retain(|_, session| !session.has_ended());
        // A role that logs in again and again makes room for itself.
        let is_of_role = |other: &Session| other.role == role;
        let number = all.values().filter(|other| is_of_role(other)).count();
        if number >= OF_ROLE || all.len() >= SESSIONS {
            let mut others: Vec<_> = all.iter().collect();
            others.retain(|(_, other)| number < OF_ROLE || is_of_role(other));
            let idle = others.into_iter().min_by_key(|(_, other)| other.used.get());
            if let Some(key) = idle.map(|(key, _)| *key) {
                all.remove(&key);
            }
        }
        all.insert(key(&id), session);
        Some(id)
    }

    /// The session of this cookie in this database. A page that renews itself is no use of it, unless it stays on a screen.
    pub fn find(&self, cookie: &str, database: &Database, is_renewal: bool) -> Option<Rc<Session>> {
        let mut all = self.0.borrow_mut();
        let found = all.get(&key(cookie)).map(Rc::clone)?;
        if found.has_ended() {
            all.remove(&key(cookie));
            return None;
        }
        if !is_renewal || found.rights.borrow().1.is_kiosk() {
            found.used.set(Instant::now());
        }
        (found.database.label == database.label).then_some(found)
    }

    /// Ends the session of this cookie.
    pub fn end(&self, cookie: &str) {
        self.0.borrow_mut().remove(&key(cookie));
    }

    /// Ends sessions, and closes connections, that are not used.
    pub fn sweep(&self) {
        let mut all = self.0.borrow_mut();
        all.retain(|_, session| !session.has_ended());
        for session in all.values() {
            if let Ok(mut slot) = session.slot.try_lock() {
                *slot = slot.take().filter(Connection::is_usable);
            }
        }
    }
}

fn key(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie.as_bytes()).into()
}

/// 256 random bits in base64; `None` if the system has none.
fn random() -> Option<String> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(bytes.as_mut_slice()).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conninfo::{Environment, parse_all};
    use crate::log::{Format, Log};

    /// A session with these rights, whose cookie is `id`.
    fn begun(rights: Rights) -> (Sessions, Rc<Session>, Rc<Database>) {
        let url = "host=/nowhere dbname=app".to_owned();
        let mut targets = parse_all(&[url], &Environment::of_process()).unwrap();
        let log = Log::new(Format::Text);
        let database = Database::new(targets.remove(0), "app".to_owned(), &log);
        let database = Rc::new(database);
        let now = Instant::now();
        let session = Rc::new(Session {
            role: "ann".to_owned(),
            database: Rc::clone(&database),
            csrf: String::new(),
            password: Zeroizing::default(),
            began: now,
            used: Cell::new(now),
            notice: RefCell::default(),
            rights: RefCell::new((now, Rc::new(rights))),
            slot: Mutex::new(None),
        });
        let sessions = Sessions::default();
        sessions
            .0
            .borrow_mut()
            .insert(key("id"), Rc::clone(&session));
        (sessions, session, database)
    }

    #[test]
    fn a_page_that_renews_itself_keeps_no_session_alive() {
        let (sessions, session, database) = begun(Rights {
            sees_addresses: true,
            ..Rights::default()
        });
        let before = session.used.get();
        assert!(sessions.find("id", &database, true).is_some());
        assert_eq!(session.used.get(), before);
        assert!(sessions.find("id", &database, false).is_some());
        assert!(session.used.get() > before);
        assert!(sessions.find("other", &database, false).is_none());
    }

    #[test]
    fn a_screen_that_sees_no_address_and_changes_nothing_stays() {
        let (sessions, session, database) = begun(Rights {
            sees_mail: true,
            sees_transports: true,
            ..Rights::default()
        });
        let before = session.used.get();
        assert!(sessions.find("id", &database, true).is_some());
        assert!(session.used.get() > before);
    }
}
