//! Logging in and out.

use std::rc::Rc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER, SET_COOKIE};
use mailroom_core::line::quoted;
use zeroize::Zeroizing;

use super::{Asked, Pages, error};
use crate::http_server::{Answer, with};
use crate::serve::database::Database;
use crate::serve::form::Form;
use crate::serve::pages;
use crate::serve::response::{plain, see_other};
use crate::serve::route;
use crate::serve::sessions::{Notice, Session};
use crate::serve::site::encoded;

/// Maximum size of the name of a role in bytes.
const ROLE_MAX: usize = 63;

impl Pages {
    /// Logs in whose role and password a form holds.
    pub(super) async fn log_in(&self, asked: &Asked<'_>, form: &Form) -> Answer {
        let database = asked.database;
        if let Some(wait) = self.attempts.count(asked.peer, Instant::now()) {
            let notice = error("Too many attempts. Please wait a minute.");
            let answer =
                self.log_in_page(asked, StatusCode::TOO_MANY_REQUESTS, form, Some(&notice));
            return with(answer, RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        let Some(role) = form.get("role") else {
            let notice = error("Please give a role and its password.");
            return self.log_in_page(asked, StatusCode::BAD_REQUEST, form, Some(&notice));
        };
        let password = Zeroizing::new(form.raw("password").to_owned());
        let Some(_turn) = database.turn().await else {
            let notice = error("Too many attempts at a time. Please try again.");
            return self.log_in_page(asked, StatusCode::SERVICE_UNAVAILABLE, form, Some(&notice));
        };
        let logged_in = match database.log_in(role, &password).await {
            Ok(logged_in) => logged_in,
            Err(refused) => {
                if let Some(left_out) = self.attempts.tell(asked.peer, Instant::now()) {
                    // No role has a longer name.
                    let what = format!(
                        "role {} was not logged in from {}: {}",
                        quoted(role, ROLE_MAX),
                        asked.peer,
                        refused.reason
                    );
                    database.log.warn_after(&what, left_out);
                }
                let notice = Notice {
                    hint: refused.hint,
                    ..error(&refused.message)
                };
                let status = match refused.is_outage {
                    true => StatusCode::SERVICE_UNAVAILABLE,
                    false => StatusCode::FORBIDDEN,
                };
                return self.log_in_page(asked, status, form, Some(&notice));
            }
        };
        // An earlier session of this browser.
        if let Some(cookie) = self.site.cookie(asked.headers) {
            self.sessions.end(cookie);
        }
        let begun = self
            .sessions
            .begin(Rc::clone(database), role, password, logged_in);
        let Some(id) = begun else {
            self.log.warn("the system has no random bytes", "", "");
            return plain(StatusCode::SERVICE_UNAVAILABLE, "try again later\n");
        };
        let what = format!("role \"{role}\" logged in from {}", asked.peer);
        database.log.log(&what);
        let next = form.get("next").filter(|next| route::is_page(next));
        let answer = see_other(&self.site.path(&database.label, next.unwrap_or_default()));
        self.with_cookie(answer, database, &id)
    }

    pub(super) fn log_out(&self, asked: &Asked<'_>, session: &Session) -> Answer {
        if let Some(cookie) = self.site.cookie(asked.headers) {
            self.sessions.end(cookie);
        }
        let what = format!("role \"{}\" logged out", session.role);
        asked.database.log.log(&what);
        let answer = see_other(&self.site.path(&asked.database.label, "login"));
        self.with_cookie(answer, asked.database, "")
    }

    pub(super) fn with_cookie(&self, answer: Answer, database: &Database, value: &str) -> Answer {
        let cookie = self.site.set_cookie(&database.label, value);
        match HeaderValue::from_str(&cookie) {
            Ok(cookie) => with(answer, SET_COOKIE, cookie),
            Err(_) => answer,
        }
    }

    /// Leads to the log-in, and from there back. A page that renews itself is told to reload.
    pub(super) fn to_log_in(&self, asked: &Asked<'_>) -> Answer {
        if asked.is_renewal() {
            return plain(StatusCode::UNAUTHORIZED, "the session has ended\n");
        }
        let here = asked.here();
        let next = match route::is_page(&here) && !here.is_empty() {
            true => format!("login?next={}", encoded(&here)),
            false => "login".to_owned(),
        };
        see_other(&self.site.path(&asked.database.label, &next))
    }

    pub(super) fn log_in_page(
        &self,
        asked: &Asked<'_>,
        status: StatusCode,
        form: &Form,
        notice: Option<&Notice>,
    ) -> Answer {
        let is_only = self.databases.len() == 1;
        let body = pages::log_in::form(
            &self.site,
            &self.assets,
            asked.database,
            form,
            notice,
            is_only,
        );
        let title = format!("Log in · {} · mailroom", asked.database.label);
        self.alone(asked.theme, status, &title, &body)
    }
}
