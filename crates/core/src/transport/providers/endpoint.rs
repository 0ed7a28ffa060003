//! The URL of requests: `endpoint` of the transport, or the provider's default, and paths below it. Pure.

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};

use crate::transport::invalid::Invalid;

const KEY: &str = "endpoint";

/// An absolute http or https URL, without user, and without the default port of its scheme, so that the host that a
/// signature covers is the host that the client sends.
#[derive(Clone)]
pub struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    path: String,
    query: Option<String>,
}

impl Endpoint {
    /// Parses the setting, or `default` if it is empty.
    ///
    /// # Errors
    /// The error in the setting.
    pub fn new(setting: &str, default: &str) -> Result<Self, Invalid> {
        let text = if setting.is_empty() { default } else { setting };
        if text.is_empty() {
            return Err(Invalid::missing(KEY));
        }
        let wrong = |what: &str| Invalid::new(KEY, what);
        let uri: Uri = text.parse().map_err(|_| wrong("is no address"))?;
        let parts = uri.into_parts();
        let scheme = parts
            .scheme
            .filter(|scheme| *scheme == Scheme::HTTPS || *scheme == Scheme::HTTP)
            .ok_or_else(|| wrong("must begin with https://"))?;
        let authority = parts.authority.ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("must not hold a user"));
        }
        if authority.host().is_empty() {
            return Err(wrong("names no host"));
        }
        let usual = if scheme == Scheme::HTTPS { 443 } else { 80 };
        let authority = match authority.port_u16() {
            Some(port) if port == usual => authority
                .host()
                .parse()
                .map_err(|_| wrong("names no host"))?,
            None if authority.as_str() != authority.host() => {
                return Err(wrong("has a port that is none"));
            }
            _ => authority,
        };
        let (path, query) = parts.path_and_query.map_or((String::new(), None), |whole| {
            (whole.path().to_owned(), whole.query().map(str::to_owned))
        });
        Ok(Self {
            scheme,
            authority,
            path,
            query,
        })
    }

    /// As [`Endpoint::new`], for an endpoint to which these paths are appended: slashes at its end are dropped.
    ///
    /// # Errors
    /// Also if it has a query, or ends with the beginning of such a path, which requests would then have twice.
    pub fn base(setting: &str, default: &str, paths: &[&str]) -> Result<Self, Invalid> {
        let mut endpoint = Self::new(setting, default)?;
        let length = endpoint.path.trim_end_matches('/').len();
        endpoint.path.truncate(length);
        if endpoint.query.is_some() {
            let what = "must not have a query for this provider";
            return Err(Invalid::new(KEY, what));
        }
        if let Some(begin) = paths.iter().find_map(|path| endpoint.repeated(path)) {
            let what = format!(
                "must not end with {begin}, which mailroom appends; write what is before it"
            );
            return Err(Invalid::new(KEY, what));
        }
        Ok(endpoint)
    }

    /// The longest beginning of this path, of whole segments, with which the endpoint ends.
    fn repeated<'p>(&self, path: &'p str) -> Option<&'p str> {
        let slashes = path.match_indices('/').map(|(place, _)| place).skip(1);
        let begins = slashes.chain([path.len()]).map(|end| &path[..end]);
        begins.filter(|begin| self.path.ends_with(begin)).last()
    }

    /// The host name, without the port.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// The URL with `path` appended, which is empty or begins with a slash.
    ///
    /// # Errors
    /// If the result is not a URL.
    pub fn uri(&self, path: &str) -> Result<Uri, Invalid> {
        let mut whole = format!("{}{path}", self.path);
        if whole.is_empty() {
            whole.push('/');
        }
        if let Some(query) = &self.query {
            whole.push('?');
            whole.push_str(query);
        }
        let whole: PathAndQuery = whole.parse().map_err(|_| no_address())?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(whole)
            .build()
            .map_err(|_| no_address())
    }
}

fn no_address() -> Invalid {
    Invalid::new(KEY, "is no address")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uri(setting: &str, path: &str) -> String {
        let endpoint =
            Endpoint::base(setting, "https://default.example/", &["/mail/send"]).unwrap();
        endpoint.uri(path).unwrap().to_string()
    }

    fn problem(setting: &str) -> String {
        match Endpoint::base(setting, "", &["/mail/send", "/mail/several"]) {
            Ok(_) => panic!("{setting:?} was accepted"),
            Err(invalid) => invalid.to_string(),
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(uri("", "/v1"), "https://default.example/v1");
        assert_eq!(uri("https://a.example", ""), "https://a.example/");
        assert_eq!(uri("https://a.example:443/", "/x"), "https://a.example/x");
        assert_eq!(uri("http://[::1]:80/", "/x"), "http://[::1]/x");
        assert_eq!(uri("http://[::1]:81/", "/x"), "http://[::1]:81/x");
        assert_eq!(uri("http://a:443/p/", "/x"), "http://a:443/p/x");
        assert_eq!(uri("https://a/v3//", "/x"), "https://a/v3/x");
    }

    #[test]
    fn without_paths_below_it_an_endpoint_stays_as_written() {
        for (setting, whole) in [
            ("https://a.example", "https://a.example/"),
            ("https://a.example/", "https://a.example/"),
            ("https://a/hook", "https://a/hook"),
            ("https://a/mail/", "https://a/mail/"),
            ("https://a/hook?k=v", "https://a/hook?k=v"),
            ("https://a/hook/?k=v", "https://a/hook/?k=v"),
            ("https://a?k=v", "https://a/?k=v"),
        ] {
            let endpoint = Endpoint::new(setting, "").unwrap();
            assert_eq!(endpoint.uri("").unwrap(), whole);
        }
    }

    #[test]
    fn what_is_none() {
        assert_eq!(problem(""), "endpoint is missing");
        assert_eq!(
            problem("https://a/?q"),
            "endpoint must not have a query for this provider"
        );
        for bad in [
            "a.example",
            "/path",
            "ftp://a.example",
            "https://",
            "https://user:password@a.example",
            "https://a.example:99999",
            "https://a.example:",
            "https://a.example:http",
            "https://a b",
            "https://a\r\nb",
        ] {
            assert!(problem(bad).starts_with("endpoint "), "{bad:?}");
            assert!(!problem(bad).contains("password"));
        }
    }

    #[test]
    fn what_repeats_the_path_that_is_appended_is_refused() {
        for (setting, begin) in [
            ("https://a/mail", "/mail"),
            ("https://a/mail/", "/mail"),
            ("https://a:8443/mail/send", "/mail/send"),
            ("http://a/p/mail/several", "/mail/several"),
        ] {
            let expected = format!(
                "endpoint must not end with {begin}, which mailroom appends; write what is before it"
            );
            assert_eq!(problem(setting), expected);
        }
        for good in [
            "https://mail",
            "https://a/email",
            "https://a/mail/v1",
            "https://a/send",
        ] {
            assert!(Endpoint::base(good, "", &["/mail/send"]).is_ok(), "{good}");
        }
    }

    proptest! {
        #[test]
        fn any_setting_is_an_address_or_an_error(setting in "(https?://)?\\PC{0,30}", path in "(/[a-z]{0,5})?") {
            if let Ok(endpoint) = Endpoint::new(&setting, "") {
                let uri = endpoint.uri(&path).unwrap();
                prop_assert!(uri.host().is_some_and(|host| !host.is_empty()));
                prop_assert!(!uri.to_string().contains('@') || uri.path().contains('@') || uri.query().is_some());
            }
        }
    }
}
