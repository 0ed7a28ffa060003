//! Where the page is: allowed hosts and origins, the path before all others, cookies. Pure.
//!
//! A name that a stranger had resolved to this machine reaches it as well (DNS rebinding), so a request has to name one of a
//! few hosts.

use hyper::header::{COOKIE, HOST, HeaderMap, ORIGIN};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stays as it is in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'@');

/// What is wrong with a request before its path is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misplaced {
    /// It names no host, or two.
    NoHost,
    /// It is for another host.
    OtherHost,
}

/// Where the page is.
#[derive(Debug, PartialEq, Eq)]
pub struct Site {
    /// Hosts on this machine, with the port.
    local: [String; 3],
    /// The host of `--url`.
    host: Option<String>,
    is_secure: bool,
    base: String,
    cookie: String,
}

impl Site {
    /// The site at this URL, which a proxy serves, and on this port of the machine.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(url: Option<&str>, port: u16) -> Result<Self, String> {
        let (is_secure, host, base) = match url {
            None => (false, None, ""),
            Some(url) => {
                let (is_secure, host, base) = parse(url).ok_or(
                    "--url is not of the form https://host/path, without user, query and fragment",
                )?;
                (is_secure, Some(host.to_ascii_lowercase()), base)
            }
        };
        // Browsers leave the usual port out.
        let usual = if is_secure { ":443" } else { ":80" };
        let host = host.map(|host| host.strip_suffix(usual).map_or(host.clone(), str::to_owned));
        Ok(Self {
            local: ["127.0.0.1", "[::1]", "localhost"].map(|name| match port {
                80 => name.to_owned(),
                _ => format!("{name}:{port}"),
            }),
            host,
            is_secure,
            base: base.to_owned(),
            // Cookies know no ports.
            cookie: match is_secure {
                true => "__Secure-mailroom".to_owned(),
                false => format!("mailroom-{port}"),
            },
        })
    }

    /// Whether people reach it by https.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Checks the host that a request is for.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_host(&self, headers: &HeaderMap) -> Result<(), Misplaced> {
        let host = only(headers, HOST).ok_or(Misplaced::NoHost)?;
        let host = host.to_ascii_lowercase();
        match self.local.contains(&host) || self.host.as_ref() == Some(&host) {
            true => Ok(()),
            false => Err(Misplaced::OtherHost),
        }
    }

    /// Whether a page of this site sent a request, whose host has been checked.
    pub fn is_own(&self, headers: &HeaderMap) -> bool {
        let is_same_site = headers
            .get_all("sec-fetch-site")
            .iter()
            .all(|value| value == "same-origin");
        let Some((origin, host)) = only(headers, ORIGIN).zip(only(headers, HOST)) else {
            return false;
        };
        let host = host.to_ascii_lowercase();
        let is_public = self.is_secure && self.host.as_ref() == Some(&host);
        let scheme = if is_public { "https" } else { "http" };
        is_same_site && origin.eq_ignore_ascii_case(&format!("{scheme}://{host}"))
    }

    /// The path of a request without that of `--url`; `None` if it is outside.
    pub fn inside<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(&self.base)?;
        rest.starts_with('/').then_some(rest)
    }

    /// The path of a page: of this database, and within it.
    pub fn path(&self, label: &str, within: &str) -> String {
        let label = utf8_percent_encode(label, SEGMENT);
        format!("{}/{label}/{within}", self.base)
    }

    /// The path of what belongs to no database.
    pub fn root(&self, within: &str) -> String {
        format!("{}/{within}", self.base)
    }

    /// The value of a session's cookie.
    pub fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        cookies(headers).find_map(|(name, value)| (name == self.cookie).then_some(value))
    }

    /// The header that sets the cookie of a session of this database; an empty value removes it.
    pub fn set_cookie(&self, label: &str, value: &str) -> String {
        let path = self.path(label, "");
        let secure = if self.is_secure { "; Secure" } else { "" };
        let age = if value.is_empty() { "; Max-Age=0" } else { "" };
        format!(
            "{}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}{age}",
            self.cookie
        )
    }
}

/// The cookies of a request.
pub fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).into_iter();
    let pairs = lines.filter_map(|line| line.to_str().ok());
    let pairs = pairs.flat_map(|line| line.split(';'));
    pairs.filter_map(|pair| pair.trim().split_once('='))
}

/// A path of segments, each encoded.
pub fn encoded(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: hyper::header::HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).into_iter();
    let first = all.next()?;
    all.next().is_none().then_some(first.to_str().ok()?)
}

/// Whether a URL is one of https, its host, and its path without a slash at the end.
fn parse(url: &str) -> Option<(bool, &str, &str)> {
    let (is_secure, rest) = match url.split_once("://")? {
        ("https", rest) => (true, rest),
        ("http", rest) => (false, rest),
        _ => return None,
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let is_good = !host.is_empty()
        && host.bytes().all(is_of_host)
        && path.bytes().all(is_of_path)
        && !path.contains("//")
        && !path.split('/').any(|segment| segment == "..");
    let path = path.strip_suffix('/').unwrap_or(path);
    is_good.then_some((is_secure, host, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, hyper::header::HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn urls_are_strict() {
        for (url, expected) in [
            (
                "https://ops.example.com",
                Some((true, "ops.example.com", "")),
            ),
            (
                "https://ops.example.com/",
                Some((true, "ops.example.com", "")),
            ),
            ("https://a:8443/mail/", Some((true, "a:8443", "/mail"))),
            ("http://localhost/m", Some((false, "localhost", "/m"))),
            ("https://ann@a/", None),
            ("https://a//b", None),
            ("https://a/b//", None),
            ("https://a/../b", None),
            ("https://a/?q", None),
            ("https:///x", None),
            ("ftp://a", None),
            ("a", None),
        ] {
            assert_eq!(parse(url), expected, "{url}");
        }
    }

    #[test]
    fn only_known_hosts_are_served() {
        let site = Site::new(Some("https://Ops.example.com/mail"), 8425).unwrap();
        for (host, expected) in [
            ("localhost:8425", Ok(())),
            ("LOCALHOST:8425", Ok(())),
            ("127.0.0.1:8425", Ok(())),
            ("[::1]:8425", Ok(())),
            ("ops.example.com", Ok(())),
            ("ops.example.com:8425", Err(Misplaced::OtherHost)),
            ("localhost", Err(Misplaced::OtherHost)),
            ("127.0.0.1:8426", Err(Misplaced::OtherHost)),
            ("evil.example", Err(Misplaced::OtherHost)),
            ("", Err(Misplaced::OtherHost)),
        ] {
            assert_eq!(
                site.check_host(&headers(&[("host", host)])),
                expected,
                "{host}"
            );
        }
        let usual = Site::new(Some("https://a:443"), 80).unwrap();
        for host in ["a", "localhost"] {
            assert_eq!(usual.check_host(&headers(&[("host", host)])), Ok(()));
        }
        let none = Err(Misplaced::NoHost);
        assert_eq!(site.check_host(&headers(&[])), none);
        let two = [("host", "localhost:8425"), ("host", "localhost:8425")];
        assert_eq!(site.check_host(&headers(&two)), none);
    }

    #[test]
    fn only_its_own_pages_may_post() {
        let site = Site::new(Some("https://ops.example.com"), 8425).unwrap();
        let (own, local) = ("https://ops.example.com", "http://localhost:8425");
        for (host, origin, fetch, expected) in [
            ("ops.example.com", own, Some("same-origin"), true),
            ("ops.example.com", own, None, true),
            ("ops.example.com", own, Some("cross-site"), false),
            ("ops.example.com", own, Some("same-site"), false),
            ("ops.example.com", own, Some("none"), false),
            ("ops.example.com", "http://ops.example.com", None, false),
            ("ops.example.com", local, None, false),
            ("ops.example.com", "null", None, false),
            ("localhost:8425", local, None, true),
            ("localhost:8425", "http://127.0.0.1:8425", None, false),
            ("localhost:8425", own, None, false),
        ] {
            let mut all = vec![("host", host), ("origin", origin)];
            all.extend(fetch.map(|fetch| ("sec-fetch-site", fetch)));
            let found = site.is_own(&headers(&all));
            assert_eq!(found, expected, "{host} {origin} {fetch:?}");
        }
        assert!(!site.is_own(&headers(&[("host", "localhost:8425")])));
    }

    #[test]
    fn cookies_are_of_one_database() {
        let site = Site::new(Some("https://a/mail"), 8425).unwrap();
        let set = site.set_cookie("my app", "v");
        let expected = "__Secure-mailroom=v; Path=/mail/my%20app/; HttpOnly; SameSite=Lax; Secure";
        assert_eq!(set, expected);
        let plain = Site::new(None, 8425).unwrap();
        let removed = plain.set_cookie("app", "");
        let expected = "mailroom-8425=; Path=/app/; HttpOnly; SameSite=Lax; Max-Age=0";
        assert_eq!(removed, expected);
        let sent = headers(&[("cookie", "a=b; mailroom-8425=v"), ("cookie", "c=d")]);
        assert_eq!(plain.cookie(&sent), Some("v"));
        assert_eq!(site.cookie(&sent), None);
    }
}
