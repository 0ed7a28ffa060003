//! The page behind the link that unsubscribes, and what its button, or the mail program, posts (RFC 8058).
//!
//! A GET shows a button and does nothing, because scanners of mail follow links. The pages are always the same: nothing of a
//! request is in them.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
};
use hyper::{Response, StatusCode};

use mailroom_core::token::unsubscribe::TOKEN_MAX;

use super::database::Database;
use super::endpoint::later;
use crate::http_server::{Answer, Exchange, with};

/// Maximum size of a form: that of RFC 8058 has 26 bytes.
const FORM_MAX: usize = 16 * 1024;

/// A page with this title and contents.
macro_rules! html {
    ($title:literal, $contents:literal) => {
        concat!(
            include_str!("unsubscribe/begin.html"),
            "<title>",
            $title,
            "</title>\n",
            include_str!("unsubscribe/style.html"),
            $contents,
            include_str!("unsubscribe/end.html"),
        )
    };
}

const ASK: &str = html!(
    "Unsubscribe",
    "<h1>Unsubscribe?</h1>\n\
     <p>You will get no more mail of this list.</p>\n\
     <form method=\"post\"><button>Unsubscribe</button></form>\n"
);
const DONE: &str = html!(
    "Unsubscribed",
    "<h1>You are unsubscribed</h1>\n\
     <p>You will get no more mail of this list.</p>\n"
);
const WRONG: &str = html!(
    "Link not valid",
    "<h1>This link is not valid</h1>\n\
     <p>Please open the link in the mail once more, whole.</p>\n"
);

/// Nothing is loaded, and the form is posted to where the page is from. Neither a cache nor another site learns of the link.
const HEADERS: [(hyper::header::HeaderName, &str); 4] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
];

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// With the button.
    Ask,
    /// After it.
    Done,
    /// The link is not genuine.
    Wrong,
}

/// The answer that shows a page.
pub fn page(status: StatusCode, page: Page) -> Answer {
    let source = match page {
        Page::Ask => ASK,
        Page::Done => DONE,
        Page::Wrong => WRONG,
    };
    let mut answer = Response::new(Full::new(Bytes::from_static(source.as_bytes())));
    *answer.status_mut() = status;
    HEADERS.into_iter().fold(answer, |answer, (name, value)| {
        with(answer, name, HeaderValue::from_static(value))
    })
}

/// Unsubscribes whose token this is.
pub async fn unsubscribe(database: &Database, token: &str, exchange: Exchange) -> Answer {
    // What it says does not matter: a POST is the sign.
    let whole = match exchange.read(FORM_MAX).await {
        Ok(whole) => whole,
        Err(answer) => return answer,
    };
    // What can be no token does not keep the connection from events.
    let done = match is_plausible(token) {
        true => database.unsubscribe(token).await,
        false => Some(false),
    };
    drop(whole.turn);
    match done {
        Some(true) => page(StatusCode::OK, Page::Done),
        Some(false) => page(StatusCode::NOT_FOUND, Page::Wrong),
        None => later(),
    }
}

fn is_plausible(token: &str) -> bool {
    let is_of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !token.is_empty() && token.len() <= TOKEN_MAX && token.bytes().all(is_of_base64)
}
