//! What a request asks for. Pure.

use hyper::Method;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// To record what a provider posts about the mail of this transport.
    Events(&'a str),
    /// Whether the program works.
    Health,
    /// To ask whether to unsubscribe. It does nothing: scanners of mail follow links.
    AskUnsubscribe,
    /// To unsubscribe, in the database of this name if the path has one.
    Unsubscribe(Option<&'a str>),
    /// Something at a path that takes these methods only.
    OtherMethod(&'static str),
    /// A path that does not exist.
    Unknown,
}

/// What a method and a path, without the query, ask for.
pub fn route<'a>(method: &Method, path: &'a str) -> Route<'a> {
    match path {
        "/health" if method == Method::GET => Route::Health,
        "/health" => Route::OtherMethod("GET"),
        _ => match path.strip_prefix("/events/") {
            Some(name) if name.is_empty() || name.contains('/') => Route::Unknown,
            Some(name) if method == Method::POST => Route::Events(name),
            Some(_) => Route::OtherMethod("POST"),
            None => match path.strip_suffix("/unsubscribe") {
                Some("") => unsubscribe(method, None),
                Some(prefix) => match prefix.strip_prefix('/') {
                    Some(name) if !name.is_empty() && !name.contains('/') => {
                        unsubscribe(method, Some(name))
                    }
                    _ => Route::Unknown,
                },
                None => Route::Unknown,
            },
        },
    }
}

fn unsubscribe<'a>(method: &Method, database: Option<&'a str>) -> Route<'a> {
    match *method {
        Method::POST => Route::Unsubscribe(database),
        Method::GET | Method::HEAD => Route::AskUnsubscribe,
        _ => Route::OtherMethod("GET, HEAD, POST"),
    }
}

/// The token in the query of a link; empty without one. It has no character that a URL would encode.
pub fn token(query: &str) -> &str {
    let mut pairs = query.split('&');
    pairs
        .find_map(|pair| pair.strip_prefix("token="))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_are_exact() {
        for (method, path, expected) in [
            ("POST", "/events/main", Route::Events("main")),
            ("POST", "/events/a-b_1", Route::Events("a-b_1")),
            ("GET", "/health", Route::Health),
            ("GET", "/events/main", Route::OtherMethod("POST")),
            ("PUT", "/events/main", Route::OtherMethod("POST")),
            ("POST", "/health", Route::OtherMethod("GET")),
            ("HEAD", "/health", Route::OtherMethod("GET")),
            ("GET", "/health/", Route::Unknown),
            ("POST", "/events/", Route::Unknown),
            ("POST", "/events", Route::Unknown),
            ("POST", "/events/main/", Route::Unknown),
            ("POST", "//events/main", Route::Unknown),
            ("POST", "/x/events/main", Route::Unknown),
            ("POST", "/EVENTS/main", Route::Unknown),
            ("GET", "/", Route::Unknown),
            ("GET", "/unsubscribe", Route::AskUnsubscribe),
            ("HEAD", "/app/unsubscribe", Route::AskUnsubscribe),
            ("POST", "/unsubscribe", Route::Unsubscribe(None)),
            ("POST", "/app/unsubscribe", Route::Unsubscribe(Some("app"))),
            (
                "DELETE",
                "/unsubscribe",
                Route::OtherMethod("GET, HEAD, POST"),
            ),
            ("POST", "//unsubscribe", Route::Unknown),
            ("POST", "/a/b/unsubscribe", Route::Unknown),
            ("POST", "/unsubscribe/", Route::Unknown),
            ("OPTIONS", "*", Route::Unknown),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(route(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_token_is_taken_out_of_the_query() {
        for (query, expected) in [
            ("token=abc-_", "abc-_"),
            ("a=b&token=abc&token=d", "abc"),
            ("tokens=abc", ""),
            ("", ""),
        ] {
            assert_eq!(token(query), expected, "{query}");
        }
    }
}
