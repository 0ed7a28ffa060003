//! What a request asks for. Pure.

use hyper::Method;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// To record what a provider posts about the mail of this transport.
    Events(&'a str),
    /// Whether the program works.
    Health,
    /// Something at a path that takes this method only.
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
            None => Route::Unknown,
        },
    }
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
            ("OPTIONS", "*", Route::Unknown),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(route(&method, path), expected, "{method} {path}");
        }
    }
}
