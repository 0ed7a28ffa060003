//! Answers what providers post.
//!
//! A stranger learns from an answer what kind of fault it is, never which secret, header or part of the body is wrong: that
//! is for the log.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use mailroom_core::events::report::REPORT_MAX;
use mailroom_core::events::{BODY_MAX, Event, Received, Receiver, Request};
use mailroom_core::transport::config::TransportEvents;
use tokio::task::{JoinHandle, JoinSet, spawn_local};

use super::database::{Database, Taken};
use super::route::{Route, route, token};
use super::sns::{Missing, Sns};
use super::transports::Transports;
use super::unsubscribe::{Page, page, unsubscribe};
use crate::http_server::{Answer, Exchange, Handler, Turn, text, with};
use crate::log::{Log, Throttle};

/// SNS sends the credentials of a subscription's URL only after a challenge.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"mailroom\"");
/// After how many seconds a provider tries again if a database did not take events.
const RETRY: HeaderValue = HeaderValue::from_static("10");

/// The endpoint.
pub struct Endpoint {
    log: Log,
    transports: Transports,
    databases: Vec<Rc<Database>>,
    sns: Sns,
    /// Lines about requests that were refused, for each transport.
    refusals: RefCell<HashMap<String, Throttle>>,
}

impl Handler for Endpoint {
    async fn answer(&self, exchange: Exchange) -> Answer {
        match route(exchange.method(), exchange.path()) {
            Route::Health => text(StatusCode::OK, "ok\n"),
            Route::Unknown => unknown(),
            Route::AskUnsubscribe => page(StatusCode::OK, Page::Ask),
            Route::Unsubscribe(name) => {
                let database = self.database_for_links(name);
                let token = token(exchange.query()).to_owned();
                match database {
                    Ok(database) => unsubscribe(&database, &token, exchange).await,
                    Err(answer) => answer,
                }
            }
            Route::OtherMethod(methods) => {
                let answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
                with(answer, ALLOW, HeaderValue::from_static(methods))
            }
            Route::Events(name) => match self.transports.find(name) {
                Some(transport) => self.receive(&transport, exchange).await,
                None => unknown(),
            },
        }
    }

    /// Connects to each database; returns whether the role may report events wherever it was connected to.
    async fn check(&self) -> bool {
        self.transports.tell(&self.log);
        let mut all = JoinSet::new();
        for database in &self.databases {
            let database = Rc::clone(database);
            all.spawn_local(async move { database.check().await });
        }
        let mut may_report = true;
        while let Some(one) = all.join_next().await {
            may_report &= one.unwrap_or(true);
        }
        may_report
    }

    fn reload(&self) {
        self.transports.reload(&self.log);
    }

    /// Closes all connections.
    async fn close(&self) {
        for database in &self.databases {
            database.close().await;
        }
    }
}

impl Endpoint {
    /// An endpoint whose requests nothing answers yet.
    pub fn new(log: Log, transports: Transports, databases: Vec<Rc<Database>>) -> Self {
        Self {
            log,
            transports,
            databases,
            sns: Sns::default(),
            refusals: RefCell::default(),
        }
    }

    /// The database of a link, by the name in its path: the only one needs none.
    ///
    /// # Errors
    /// The answer if there is none, or the name of one is not known yet.
    fn database_for_links(&self, name: Option<&str>) -> Result<Rc<Database>, Answer> {
        let found = match (name, &self.databases[..]) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), all) => match all.iter().find(|one| one.is_named(name)) {
                None if all.iter().any(|one| !one.has_name()) => return Err(later()),
                found => found,
            },
        };
        found.map(Rc::clone).ok_or_else(unknown)
    }

    /// Receives a request to the webhook of a transport.
    async fn receive(&self, transport: &Rc<TransportEvents>, exchange: Exchange) -> Answer {
        let mut databases = self.databases.iter();
        let Some(receiver) = &transport.receiver else {
            return unknown();
        };
        if !databases.any(|database| database.may_be_served(transport)) {
            self.warn(&transport.name, "the transport serves no database here");
            return unknown();
        }
        let whole = match exchange.read(BODY_MAX).await {
            Ok(whole) => whole,
            Err(answer) => return answer,
        };
        let headers = readable(&whole.headers);
        let request = Request {
            headers: &headers,
            body: &whole.body,
            now: SystemTime::now(),
            retention: self.retention(),
        };
        match self.verify(&transport.name, receiver, &request).await {
            Ok(Received::Events(events)) => {
                drop(whole.body);
                self.record(transport, &events, whole.turn).await
            }
            Ok(received) => self.respond(&transport.name, received).await,
            Err(answer) => answer,
        }
    }

    /// How long events are remembered: the longest time of all databases.
    fn retention(&self) -> Duration {
        let each = self.databases.iter().map(|database| database.retention());
        each.max().unwrap_or_default()
    }

    /// What a request is; of SNS by its signature, with the certificate that it names.
    ///
    /// # Errors
    /// The answer if there is no certificate now.
    async fn verify(
        &self,
        transport: &str,
        receiver: &Receiver,
        request: &Request<'_>,
    ) -> Result<Received, Answer> {
        if !receiver.is_sns() {
            return Ok(receiver.receive(request));
        }
        let url = match receiver.certificate_url(request) {
            Ok(url) => url,
            Err(received) => return Ok(received),
        };
        match self.sns.certificate(&url).await {
            Ok(certificate) => Ok(receiver.receive_signed(request, &certificate)),
            Err(Missing::Unknown) => Ok(Received::Forged("SNS does not have its certificate")),
            Err(Missing::Unreached(why)) => {
                let what = format!("the certificate of SNS could not be fetched: {why}");
                self.warn(transport, &what);
                Err(later())
            }
        }
    }

    /// The answer to a request without events to record.
    async fn respond(&self, name: &str, received: Received) -> Answer {
        match received {
            Received::Events(_) | Received::Ignored => text(StatusCode::OK, "ignored\n"),
            Received::Confirm { url } => self.confirm(name, &url).await,
            Received::Forged(why) => {
                self.warn(name, &format!("a request was refused: {why}"));
                let answer = text(StatusCode::UNAUTHORIZED, "not authentic\n");
                with(answer, WWW_AUTHENTICATE, CHALLENGE)
            }
            Received::Stale => {
                self.warn(name, "a request was refused: it is too old");
                text(StatusCode::BAD_REQUEST, "too old\n")
            }
            Received::Malformed(why) => {
                self.warn(name, &format!("a request was refused: {why}"));
                text(StatusCode::BAD_REQUEST, "malformed\n")
            }
        }
    }

    /// Records events in each database that the transport serves, also if the client does not wait for it: otherwise events
    /// would never be recorded that take longer than a provider waits.
    async fn record(
        &self,
        transport: &Rc<TransportEvents>,
        events: &[Event],
        turn: Turn,
    ) -> Answer {
        let reports: Rc<[String]> = reports(events).into();
        let turn = Rc::new(turn);
        let take = |database: &Rc<Database>| {
            let (database, transport) = (Rc::clone(database), Rc::clone(transport));
            let (reports, turn) = (Rc::clone(&reports), Rc::clone(&turn));
            spawn_local(async move {
                let taken = database.take(&transport, &reports).await;
                drop(turn);
                taken
            })
        };
        let all: Vec<JoinHandle<Taken>> = self.databases.iter().map(take).collect();
        let mut taken = Vec::with_capacity(all.len());
        for one in all {
            taken.push(one.await.unwrap_or(Taken::Failed));
        }
        summary(&taken)
    }

    /// Confirms a subscription.
    async fn confirm(&self, transport: &str, url: &str) -> Answer {
        match self.sns.confirm(url).await {
            Ok(()) => {
                let what = format!(
                    "transport \"{transport}\": the subscription to its topic is confirmed"
                );
                self.log.log(&what);
                text(StatusCode::OK, "confirmed\n")
            }
            Err(why) => {
                let what = format!("the subscription to its topic could not be confirmed: {why}");
                self.warn(transport, &what);
                later()
            }
        }
    }

    /// Writes a line about a request to the log, at most one a minute for each transport.
    fn warn(&self, transport: &str, what: &str) {
        let mut refusals = self.refusals.borrow_mut();
        let throttle = refusals.entry(transport.to_owned()).or_default();
        if let Some(left_out) = throttle.pass(Instant::now()) {
            let what = format!("transport \"{transport}\": {what}");
            self.log.warn_after(&what, left_out);
        }
    }
}

fn unknown() -> Answer {
    text(StatusCode::NOT_FOUND, "not found\n")
}

pub(super) fn later() -> Answer {
    let answer = text(StatusCode::SERVICE_UNAVAILABLE, "try again later\n");
    with(answer, RETRY_AFTER, RETRY)
}

/// The headers that are text.
fn readable(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let pair = |(name, value)| -> Option<(&str, &str)> {
        let (name, value): (&hyper::header::HeaderName, &HeaderValue) = (name, value);
        Some((name.as_str(), value.to_str().ok()?))
    };
    headers.iter().filter_map(pair).collect()
}

/// The events as `mailroom_report` takes them, so many at a time as it takes.
fn reports(events: &[Event]) -> Vec<String> {
    let report = |events: &[Event]| {
        let events: Vec<_> = events.iter().map(Event::to_json).collect();
        serde_json::Value::Array(events).to_string()
    };
    events.chunks(REPORT_MAX).map(report).collect()
}

/// The answer after the databases did this.
fn summary(taken: &[Taken]) -> Answer {
    if taken.contains(&Taken::Failed) {
        return later();
    }
    let news = |taken: &Taken| match taken {
        Taken::All(news) => Some(*news),
        Taken::NotServed | Taken::Failed => None,
    };
    match taken.iter().filter_map(news).max() {
        None => unknown(),
        Some(0) => text(StatusCode::OK, "nothing new\n"),
        Some(_) => text(StatusCode::OK, "recorded\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_database_took_is_answered_with_200() {
        use Taken::{All, Failed, NotServed};
        for (taken, status) in [
            (&[All(1)][..], 200),
            (&[All(0), All(0)], 200),
            (&[All(1), NotServed], 200),
            (&[All(1), Failed], 503),
            (&[Failed, NotServed], 503),
            (&[NotServed], 404),
        ] {
            assert_eq!(summary(taken).status().as_u16(), status, "{taken:?}");
        }
        let answer = summary(&[Failed]);
        assert_eq!(answer.headers()[RETRY_AFTER], "10");
    }
}
