//! Paths and methods. Pure.

use percent_encoding::percent_decode_str;

/// A page of a database, by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Now,
    Messages,
    MessagesCsv,
    Message(i64),
    /// The HTML of a message, for its frame.
    MessageHtml(i64),
    Failures,
    /// What a retry of many would do.
    FailuresRetry,
    Delivery,
    Templates,
    Template(String),
    TemplateHtml(String),
    Suppressions,
    SuppressionsCsv,
    Log,
    LogCsv,
    LogIn,
}

/// What a form asks for, by the path that it is posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    LogIn,
    LogOut,
    Retry(i64),
    Cancel(i64),
    Reschedule(i64),
    SendAgain(i64),
    RetryFailed,
    Pause,
    Resume,
    Wake,
    RequestLink,
    EndLinks,
    Suppress,
    Unsuppress,
}

/// The label of a database, and the path within it. `None` if the path is not of this form.
pub fn split(path: &str) -> Option<(String, &str)> {
    let (label, within) = path.strip_prefix('/')?.split_once('/')?;
    Some((decode(label)?, within))
}

/// The page at a path within a database.
pub fn page(within: &str) -> Option<Route> {
    let segments: Vec<&str> = within.split('/').collect();
    Some(match &segments[..] {
        [""] => Route::Now,
        ["messages"] => Route::Messages,
        ["messages.csv"] => Route::MessagesCsv,
        ["messages", id] => Route::Message(number(id)?),
        ["messages", id, "html"] => Route::MessageHtml(number(id)?),
        ["failures"] => Route::Failures,
        ["failures", "retry"] => Route::FailuresRetry,
        ["delivery"] => Route::Delivery,
        ["templates"] => Route::Templates,
        ["templates", kind] => Route::Template(decode(kind)?),
        ["templates", kind, "html"] => Route::TemplateHtml(decode(kind)?),
        ["suppressions"] => Route::Suppressions,
        ["suppressions.csv"] => Route::SuppressionsCsv,
        ["log"] => Route::Log,
        ["log.csv"] => Route::LogCsv,
        ["login"] => Route::LogIn,
        _ => return None,
    })
}

/// What is posted to a path within a database.
pub fn act(within: &str) -> Option<Act> {
    let segments: Vec<&str> = within.split('/').collect();
    Some(match &segments[..] {
        ["login"] => Act::LogIn,
        ["logout"] => Act::LogOut,
        ["messages", id, "retry"] => Act::Retry(number(id)?),
        ["messages", id, "cancel"] => Act::Cancel(number(id)?),
        ["messages", id, "reschedule"] => Act::Reschedule(number(id)?),
        ["messages", id, "send-again"] => Act::SendAgain(number(id)?),
        ["failures", "retry"] => Act::RetryFailed,
        ["delivery", "pause"] => Act::Pause,
        ["delivery", "resume"] => Act::Resume,
        ["delivery", "wake"] => Act::Wake,
        ["links", "request"] => Act::RequestLink,
        ["links", "end"] => Act::EndLinks,
        ["suppressions", "suppress"] => Act::Suppress,
        ["suppressions", "unsuppress"] => Act::Unsuppress,
        _ => return None,
    })
}

/// Whether a page may be led back to: its path within a database, with a query.
pub fn is_page(within: &str) -> bool {
    let path = within.split_once('?').map_or(within, |(path, _)| path);
    let is_plain = within
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    // A browser resolves these, encoded or not.
    let goes_up = |segment: &str| decode(segment).is_some_and(|name| name == "." || name == "..");
    is_plain
        && !path.split('/').any(goes_up)
        && page(path).is_some_and(|route| {
            !matches!(
                route,
                Route::LogIn
                    | Route::MessagesCsv
                    | Route::SuppressionsCsv
                    | Route::LogCsv
                    | Route::MessageHtml(_)
                    | Route::TemplateHtml(_)
            )
        })
}

fn decode(segment: &str) -> Option<String> {
    let decoded = percent_decode_str(segment).decode_utf8().ok()?;
    let is_good = !decoded.is_empty() && !decoded.contains('\0');
    is_good.then(|| decoded.into_owned())
}

fn number(segment: &str) -> Option<i64> {
    let is_plain = segment.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| segment.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact() {
        for (path, expected) in [
            ("/app/", Some(("app", ""))),
            ("/my%20app/messages", Some(("my app", "messages"))),
            ("/app", None),
            ("//messages", None),
            ("/%00/x", None),
        ] {
            let expected = expected.map(|(label, within)| (label.to_owned(), within));
            assert_eq!(split(path), expected, "{path}");
        }
        for (within, expected) in [
            ("", Some(Route::Now)),
            ("messages/42", Some(Route::Message(42))),
            ("messages/42/", None),
            ("messages/+42", None),
            ("messages/-1", None),
            ("messages/99999999999999999999", None),
            ("templates/a%2Fb", Some(Route::Template("a/b".to_owned()))),
            ("logout", None),
            ("-/health", None),
        ] {
            assert_eq!(page(within), expected, "{within}");
        }
        assert_eq!(act("messages/42/retry"), Some(Act::Retry(42)));
        assert_eq!(act("messages/42/html"), None);
        assert_eq!(act("messages"), None);
    }

    #[test]
    fn only_pages_are_led_back_to() {
        for (within, expected) in [
            ("", true),
            ("messages?q=a%40b&state=error", true),
            ("messages/42", true),
            ("login", false),
            ("/evil.example", false),
            ("https://evil.example", false),
            ("messages/../../x", false),
            ("templates/..", false),
            ("templates/%2e%2E", false),
            ("templates/\\..\\evil", false),
            ("messages.csv", false),
            ("messages/42/html", false),
            ("messages\r\nx: y", false),
        ] {
            assert_eq!(is_page(within), expected, "{within}");
        }
    }
}
