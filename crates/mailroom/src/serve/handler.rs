//! The answer to each request.

mod acting;
mod log_in;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::header::{ALLOW, HeaderMap, HeaderValue, REFRESH};
use hyper::{Method, StatusCode};
use mailroom_core::mask::mask_error;
use maud::{Markup, html};
use tokio::task::spawn_local;

use super::connection::Failure;
use super::database::Database;
use super::form::Form;
use super::layout::{Section, View, document};
use super::pages::{self, Shown};
use super::response::{html, plain, see_other};
use super::route::{self, Route};
use super::sessions::{Notice, Session, Sessions};
use super::site::{Misplaced, Site, cookies};
use super::{assets, attempts::Attempts};
use crate::http_server::{Answer, Exchange, Handler, text, with};
use crate::log::Log;

/// Maximum size of a form.
const FORM_MAX: usize = 64 * 1024;
/// How often what is not used is closed.
const SWEEP: Duration = Duration::from_secs(5);
/// The header of a page that renews itself.
const RENEWAL: &str = "mailroom-refresh";

/// All pages of all databases.
pub struct Pages {
    site: Site,
    assets: String,
    is_behind_proxy: bool,
    databases: Vec<Rc<Database>>,
    sessions: Rc<Sessions>,
    attempts: Attempts,
    log: Log,
}

impl Handler for Pages {
    async fn answer(&self, exchange: Exchange) -> Answer {
        // Of any host, because a program that watches this one reaches it by its address.
        if exchange.path() == "/-/health" {
            return text(StatusCode::OK, "ok\n");
        }
        match self.site.check_host(exchange.headers()) {
            Ok(()) => self.inside(exchange).await,
            Err(Misplaced::NoHost) => plain(StatusCode::BAD_REQUEST, "the request names no host\n"),
            Err(Misplaced::OtherHost) => plain(
                StatusCode::MISDIRECTED_REQUEST,
                "this host is not served here: --url names the one that is\n",
            ),
        }
    }

    async fn check(&self) -> bool {
        let sessions = Rc::clone(&self.sessions);
        spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                sessions.sweep();
            }
        });
        true
    }
}

/// A request of a database.
struct Asked<'a> {
    database: &'a Rc<Database>,
    within: &'a str,
    query: &'a str,
    theme: Option<&'a str>,
    headers: &'a HeaderMap,
    peer: IpAddr,
    method: &'a Method,
}

impl Asked<'_> {
    /// Whether it is of a page that renews itself.
    fn is_renewal(&self) -> bool {
        self.headers.contains_key(RENEWAL)
    }

    /// Whether a person sees the answer.
    fn takes_notices(&self) -> bool {
        self.method == Method::GET && !self.is_renewal()
    }

    /// The path within the database, with its query.
    fn here(&self) -> String {
        match self.query.is_empty() {
            true => self.within.to_owned(),
            false => format!("{}?{}", self.within, self.query),
        }
    }
}

impl Pages {
    pub fn new(site: Site, is_behind_proxy: bool, databases: Vec<Rc<Database>>, log: Log) -> Self {
        Self {
            site,
            assets: assets::version(),
            is_behind_proxy,
            databases,
            sessions: Rc::default(),
            attempts: Attempts::default(),
            log,
        }
    }

    /// Answers a request for a host of the site.
    async fn inside(&self, exchange: Exchange) -> Answer {
        let peer = self.client(&exchange);
        let (method, path) = (exchange.method().clone(), exchange.path().to_owned());
        let query = exchange.query().to_owned();
        let whole = match exchange.read(FORM_MAX).await {
            Ok(whole) => whole,
            Err(answer) => return answer,
        };
        // A slow database, or a slow log-in, must not keep other people from their pages.
        drop(whole.turn);
        let Some(path) = self.site.inside(&path) else {
            return self.unknown();
        };
        let theme = cookies(&whole.headers)
            .filter(|(name, _)| *name == "mailroom-theme")
            .map(|(_, value)| value)
            .find(|value| ["light", "dark"].contains(value));
        if path == "/-/health" {
            return text(StatusCode::OK, "ok\n");
        }
        if let Some(rest) = path.strip_prefix("/-/") {
            let asset = rest.split_once('/');
            let asset = asset.filter(|(version, _)| *version == self.assets);
            let found = asset.and_then(|(_, name)| assets::find(name));
            return found.unwrap_or_else(|| self.unknown());
        }
        if path == "/" {
            return self.databases(theme);
        }
        let Some((label, within)) = route::split(path) else {
            return self.unknown();
        };
        let Some(database) = self.databases.iter().find(|one| one.label == label) else {
            return self.unknown();
        };
        let asked = Asked {
            database,
            within,
            query: &query,
            theme,
            headers: &whole.headers,
            peer,
            method: &method,
        };
        match (&method, route::page(within), route::act(within)) {
            (&Method::GET | &Method::HEAD, Some(route), _) => self.get(&asked, route).await,
            (&Method::POST, _, Some(act)) => self.post(&asked, act, &whole.body).await,
            (_, Some(_), None) => other_method("GET, HEAD"),
            (_, None, Some(_)) => other_method("POST"),
            (_, Some(_), Some(_)) => other_method("GET, HEAD, POST"),
            (_, None, None) => self.unknown(),
        }
    }

    /// The address of the browser, as far as it can be told: the proxy adds it last.
    fn client(&self, exchange: &Exchange) -> IpAddr {
        let forwarded = exchange.headers().get_all("x-forwarded-for");
        let last = forwarded
            .into_iter()
            .next_back()
            .and_then(|value| value.to_str().ok());
        let last = last.and_then(|value| value.rsplit(',').next()?.trim().parse().ok());
        match last.filter(|_| self.is_behind_proxy) {
            Some(address) => address,
            None => exchange.peer(),
        }
    }

    async fn get(&self, asked: &Asked<'_>, route: Route) -> Answer {
        let session = self.session(asked, asked.is_renewal());
        if route == Route::LogIn {
            return match session {
                Some(_) => see_other(&self.site.path(&asked.database.label, "")),
                None => {
                    let form = Form::parse(asked.query.as_bytes());
                    self.log_in_page(asked, StatusCode::OK, &form, None)
                }
            };
        }
        let Some(session) = session else {
            return self.to_log_in(asked);
        };
        let rights = match session.rights().await {
            Ok(rights) => rights,
            Err(failure) => return self.failed(asked, &session, failure),
        };
        let here = asked.here();
        let view = View {
            site: &self.site,
            assets: &self.assets,
            database: asked.database,
            session: &session,
            rights: &rights,
            here: &here,
            theme: asked.theme,
        };
        // The first page of the menu, for a role that does not see what is now.
        let first = Section::first(&rights);
        if route == Route::Now && !first.is_empty() {
            return see_other(&view.path(first));
        }
        match pages::show(
            &view,
            route,
            &Form::parse(asked.query.as_bytes()),
            asked.headers,
        )
        .await
        {
            Ok(Shown::Page(page, clock)) => {
                let notice = match asked.takes_notices() {
                    true => session.take_notice(asked.within),
                    false => None,
                };
                html(StatusCode::OK, view.whole(&page, &clock, notice.as_ref()))
            }
            Ok(Shown::NotFound(page, clock)) => {
                html(StatusCode::NOT_FOUND, view.whole(&page, &clock, None))
            }
            Ok(Shown::Answer(answer)) => answer,
            Err(failure) => self.failed(asked, &session, failure),
        }
    }

    fn session(&self, asked: &Asked<'_>, is_renewal: bool) -> Option<Rc<Session>> {
        let cookie = self.site.cookie(asked.headers)?;
        self.sessions.find(cookie, asked.database, is_renewal)
    }

    /// The databases to choose from; with one, its first page.
    fn databases(&self, theme: Option<&str>) -> Answer {
        if let [only] = &self.databases[..] {
            return see_other(&self.site.path(&only.label, ""));
        }
        let body = pages::log_in::choice(&self.site, &self.assets, &self.databases);
        let title = "Databases · mailroom";
        self.alone(theme, StatusCode::OK, title, &body)
    }

    fn unknown(&self) -> Answer {
        let body = html! {
            main id="main" tabindex="-1" {
                div class="verdict" {
                    h1 { "There is no such page" }
                    div class="acts" { a class="button" href=(self.site.root("")) { "To the first page" } }
                }
            }
        };
        let title = "No such page · mailroom";
        self.alone(None, StatusCode::NOT_FOUND, title, &body)
    }

    /// A page without menu and foot, which does not renew itself.
    fn alone(&self, theme: Option<&str>, status: StatusCode, title: &str, body: &Markup) -> Answer {
        let page = document(&self.site, &self.assets, theme, (title, "0"), body, true);
        html(status, page)
    }

    /// The page after a failure: it tries again by itself while the database is away.
    fn failed(&self, asked: &Asked<'_>, session: &Session, failure: Failure) -> Answer {
        let (status, notice) = match failure {
            Failure::LoggedOut(reason) => {
                let what = format!("the session of role \"{}\" ended: {reason}", session.role);
                asked.database.log.log(&what);
                if let Some(cookie) = self.site.cookie(asked.headers) {
                    self.sessions.end(cookie);
                }
                return self.with_cookie(self.to_log_in(asked), asked.database, "");
            }
            Failure::Gone(reason) | Failure::NotReached(reason) => {
                asked
                    .database
                    .warn("a page could not be shown", &reason.to_string());
                let notice = Notice {
                    hint: "This page tries again by itself.".to_owned(),
                    ..error("The database cannot be used now.")
                };
                (StatusCode::SERVICE_UNAVAILABLE, notice)
            }
            Failure::Statement(statement) => {
                if statement.sqlstate == "42501" {
                    session.doubt_rights();
                }
                let status = match statement.sqlstate.as_str() {
                    "42501" => StatusCode::FORBIDDEN,
                    "57014" | "55P03" => StatusCode::SERVICE_UNAVAILABLE,
                    // Of the query: a character that the encoding of the database does not have, for example.
                    "22P05" | "22021" => StatusCode::BAD_REQUEST,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                if status.is_server_error() {
                    let reason = format!(
                        "{} [{}]",
                        mask_error(&statement.message),
                        statement.sqlstate
                    );
                    asked.database.warn("a page could not be shown", &reason);
                }
                (status, pages::refusal(&statement))
            }
        };
        let here = asked.here();
        let body = pages::log_in::failed(&self.site, asked.database, session, &notice, &here);
        let title = format!("{} · mailroom", notice.message);
        let answer = self.alone(asked.theme, status, &title, &body);
        match status {
            // A browser heeds it, with and without scripts.
            StatusCode::SERVICE_UNAVAILABLE => with(answer, REFRESH, HeaderValue::from_static("5")),
            _ => answer,
        }
    }
}

fn error(message: &str) -> Notice {
    Notice {
        is_error: true,
        message: message.to_owned(),
        ..Notice::default()
    }
}

fn other_method(methods: &'static str) -> Answer {
    let answer = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    with(answer, ALLOW, HeaderValue::from_static(methods))
}
