//! Answers and their headers.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL,
};
use hyper::{Response, StatusCode};
use maud::Markup;

use crate::http_server::{Answer, with};

/// What a page may load, and from where: nothing of other hosts. `frame-src` keeps the frame of a mail from going to where its
/// links lead.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);
/// What a mail within its frame may load: nothing but what is in it.
const MAIL_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; form-action 'none'; \
     base-uri 'none'; frame-ancestors 'self'; sandbox",
);

/// What all answers have. With `no-referrer`, browsers would send `Origin: null` with forms.
const HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (X_DNS_PREFETCH_CONTROL, "off"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// An answer with this body.
pub fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let answer = with(answer, CONTENT_TYPE, HeaderValue::from_static(kind));
    HEADERS.into_iter().fold(answer, |answer, (name, value)| {
        with(answer, name, HeaderValue::from_static(value))
    })
}

/// A page.
pub fn html(status: StatusCode, page: Markup) -> Answer {
    let answer = answer(status, "text/html; charset=utf-8", page.into_string());
    with(answer, CONTENT_SECURITY_POLICY, PAGE_POLICY)
}

/// A mail, for its frame only: opened by itself it would be a page of ours.
pub fn mail(headers: &HeaderMap, source: String) -> Answer {
    let destination = headers.get("sec-fetch-dest");
    if destination.is_some_and(|destination| destination != "iframe") {
        return plain(
            StatusCode::FORBIDDEN,
            "this is shown in a frame of its message\n",
        );
    }
    let answer = answer(StatusCode::OK, "text/html; charset=utf-8", source);
    with(answer, CONTENT_SECURITY_POLICY, MAIL_POLICY)
}

/// An answer of one line.
pub fn plain(status: StatusCode, line: &'static str) -> Answer {
    answer(status, "text/plain; charset=utf-8", line)
}

/// Leads the browser to another page, which it gets.
pub fn see_other(path: &str) -> Answer {
    let answer = plain(StatusCode::SEE_OTHER, "see the other page\n");
    // Paths are encoded, so this is a valid header.
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    with(answer, LOCATION, location)
}
