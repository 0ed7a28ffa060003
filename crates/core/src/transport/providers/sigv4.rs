//! AWS Signature Version 4 for requests with a body and without a query. Pure.
//!
//! The signed headers are `content-type`, `host`, `x-amz-date` and the session token if there is one. The host must be
//! the one that the client sends, so [`super::endpoint`] removes a default port.

use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use zeroize::Zeroizing;

use super::mac::{MacKey, hex, sha256_hex};
use super::{Request, classify, json};
use crate::transport::credentials::Credentials;
use crate::transport::dates;
use crate::transport::invalid::Invalid;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Credentials for one service in one region.
pub struct Signer {
    access_key_id: String,
    secret_access_key: Zeroizing<String>,
    session_token: Option<Zeroizing<String>>,
    region: String,
    service: &'static str,
}

impl Signer {
    /// # Errors
    /// The credential that is missing.
    pub fn new(
        credentials: &Credentials,
        region: &str,
        service: &'static str,
    ) -> Result<Self, Invalid> {
        let own = |value: &str| Zeroizing::new(value.to_owned());
        Ok(Self {
            access_key_id: credentials.require("access_key_id")?.to_owned(),
            secret_access_key: own(credentials.require("secret_access_key")?),
            session_token: credentials.get("session_token").map(own),
            region: region.to_owned(),
            service,
        })
    }

    /// Adds the headers with the signature and the time.
    ///
    /// # Errors
    /// If a credential cannot be a header.
    pub fn sign(&self, request: &mut Request, now: SystemTime) -> Result<(), String> {
        let moment = dates::basic(dates::unix(now));
        let date = json::header_value(&moment, &DATE)?;
        request.headers.insert(DATE, date);
        if let Some(token) = &self.session_token {
            json::secret_header(&mut request.headers, TOKEN, token)?;
        }
        let (names, canonical) = canonical(request);
        let scope = format!(
            "{}/{}/{}/aws4_request",
            &moment[..8],
            self.region,
            self.service
        );
        let text = format!(
            "{ALGORITHM}\n{moment}\n{scope}\n{}",
            sha256_hex(canonical.as_bytes())
        );
        let signature = hex(&self.key(&moment[..8]).sign(&[text.as_bytes()]));
        let value = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.access_key_id
        );
        json::secret_header(&mut request.headers, AUTHORIZATION, &value)
    }

    /// The signing key of a day.
    fn key(&self, day: &str) -> MacKey {
        let mut start = Zeroizing::new(Vec::with_capacity(4 + self.secret_access_key.len()));
        start.extend_from_slice(b"AWS4");
        start.extend_from_slice(self.secret_access_key.as_bytes());
        let mut key = MacKey::new(&start);
        for part in [day, &self.region, self.service, "aws4_request"] {
            key = MacKey::new(&*Zeroizing::new(key.sign(&[part.as_bytes()])));
        }
        key
    }
}

/// The names of the signed headers, and the canonical request.
fn canonical(request: &Request) -> (String, String) {
    let authority = request.uri.authority().map_or("", |host| host.as_str());
    let host = authority.to_ascii_lowercase();
    let mut names = Vec::with_capacity(4);
    let mut lines = String::new();
    let mut line = |name: &HeaderName, value: &str| {
        names.push(name.to_string());
        lines.push_str(&format!("{name}:{value}\n"));
    };
    // In alphabetical order.
    line(&CONTENT_TYPE, header(&request.headers, &CONTENT_TYPE));
    line(&hyper::header::HOST, &host);
    line(&DATE, header(&request.headers, &DATE));
    if request.headers.contains_key(TOKEN) {
        line(&TOKEN, header(&request.headers, &TOKEN));
    }
    let names = names.join(";");
    let path = encode_path(request.uri.path());
    let hash = sha256_hex(&request.body);
    (
        names.clone(),
        format!("POST\n{path}\n\n{lines}\n{names}\n{hash}"),
    )
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    classify::text(headers, name.as_str()).unwrap_or("")
}

/// Percent-encoded characters of the path are encoded again, as for every service except S3.
fn encode_path(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use bytes::Bytes;
    use hyper::http::HeaderValue;
    use serde_json::Value;

    fn signed(row: &Value, extra: &str, uri: &str) -> String {
        let text = |name: &str| row[name].as_str().unwrap();
        let credentials = fixture::credentials(&format!(
            "access_key_id = {}\nsecret_access_key = {}\n{extra}",
            text("access_key"),
            text("secret_key")
        ));
        let signer = Signer::new(&credentials, text("region"), "ses").unwrap();
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_str(text("content_type")).unwrap();
        headers.insert(CONTENT_TYPE, json);
        let mut request = Request {
            uri: uri.parse().unwrap(),
            headers,
            body: Bytes::from(text("body").to_owned()),
        };
        let now = dates::parse_http_date("Fri, 02 Jan 2026 03:04:05 GMT").unwrap();
        signer.sign(&mut request, now).unwrap();
        assert_eq!(request.headers[DATE], text("amz_date"));
        assert!(request.headers[AUTHORIZATION].is_sensitive());
        request.headers[AUTHORIZATION].to_str().unwrap().to_owned()
    }

    #[test]
    fn signatures_are_those_of_botocore() {
        for row in fixture::vectors("sigv4") {
            let text = |name: &str| row[name].as_str().unwrap();
            let uri = format!("https://{}{}", text("host"), text("path"));
            assert_eq!(
                signed(&row, "", &uri),
                format!(
                    "AWS4-HMAC-SHA256 Credential={}/20260102/{}/ses/aws4_request, SignedHeaders={}, Signature={}",
                    text("access_key"),
                    text("region"),
                    text("signed_headers"),
                    text("signature")
                )
            );
        }
    }

    #[test]
    fn a_session_token_is_signed_too() {
        let row = &fixture::vectors("sigv4")[0];
        let uri = "https://email.us-east-1.amazonaws.com/v2/email/outbound-emails";
        let with = signed(row, "session_token = abc", uri);
        assert!(with.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,"));
        assert_ne!(with, signed(row, "session_token = abd", uri));
        assert_ne!(with, signed(row, "", uri));
    }

    #[test]
    fn the_host_is_signed_with_its_port_and_in_lower_case() {
        let row = &fixture::vectors("sigv4")[0];
        let at = |host: &str| signed(row, "", &format!("http://{host}/v2/email/outbound-emails"));
        assert_eq!(at("localhost:8005"), at("LOCALHOST:8005"));
        assert_ne!(at("localhost:8005"), at("localhost:8006"));
    }

    #[test]
    fn paths_are_encoded_again() {
        assert_eq!(encode_path("/a-b/c%20d~e_f.g"), "/a-b/c%2520d~e_f.g");
    }
}
