//! WireMock: a server with any responses that a test defines, and a journal of its requests.

use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::http;
use super::process::{Process, directory};
use super::tls::{Authority, PASSWORD};

/// A running WireMock.
pub struct WireMock {
    /// The port for plain HTTP.
    pub port: u16,
    /// The port for HTTPS.
    pub https_port: u16,
    _process: Process,
}

/// A request in the journal.
#[derive(Debug)]
pub struct Received {
    /// Its path.
    pub url: String,
    /// Names, in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
    /// E.g. `HTTP/2.0`.
    pub protocol: String,
    /// When it arrived, in milliseconds since 1970.
    pub at: i64,
}

impl Received {
    /// The value of a header that must occur once.
    pub fn header(&self, name: &str) -> &str {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let (_, value) = values
            .next()
            .unwrap_or_else(|| panic!("no header {name} in {self:?}"));
        assert!(values.next().is_none(), "{name} twice in {self:?}");
        value
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl WireMock {
    /// Starts one that speaks HTTP/1.1 and HTTP/2, without TLS and with this authority's certificate.
    pub fn start(authority: &Authority) -> Self {
        let mut java = Command::new("java");
        // Two of them share two cores with a server: they must start fast and stay small.
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"])
            .arg("-jar")
            .arg(super::module(
                "wiremock/build/wiremock-standalone-3.13.2.jar",
            ))
            .args(["--port", "0", "--bind-address", "127.0.0.1"])
            .args(["--disable-banner", "--container-threads", "500"])
            // Else it makes folders where the tests were started.
            .arg("--root-dir")
            .arg(directory())
            .args(["--https-port", "0", "--keystore-type", "PKCS12"])
            .args(["--keystore-password", PASSWORD])
            .args(["--key-manager-password", PASSWORD])
            .arg("--https-keystore")
            .arg(&authority.keystore);
        let mut process = Process::start(&java);
        let port = process.port("port:  ");
        let https_port = process.port("https-port:  ");
        Self {
            port,
            https_port,
            _process: process,
        }
    }

    /// The instance that the tests of this program share; each test uses its own [`WireMock::path`].
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<WireMock> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Authority::shared()))
    }

    /// A path that no other test uses.
    pub fn path(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        format!("/hook{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The URL of a path for plain HTTP.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The URL of a path for HTTPS, with the host name of the certificate.
    pub fn https_url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.https_port)
    }

    /// Adds a stub mapping. The latest one that matches a request defines the response.
    pub fn stub(&self, mapping: &Value) {
        http::ask(self.port, "POST", "/__admin/mappings", Some(mapping));
    }

    /// Defines the response to POSTs to a path.
    pub fn answer(&self, path: &str, response: &Value) {
        self.stub(&json!({
            "priority": 9,
            "request": {"method": "POST", "urlPath": path},
            "response": response,
        }));
    }

    /// Defines the response to the first event about a mail with this subject, before the path's other ones.
    pub fn answer_first(&self, path: &str, subject: &str, response: &Value) {
        self.stub(&json!({
            "priority": 1,
            "scenarioName": format!("{path} {subject}"),
            "requiredScenarioState": "Started",
            "newScenarioState": "has failed",
            "request": {
                "method": "POST",
                "urlPath": path,
                "bodyPatterns": [
                    {"matchesJsonPath": {"expression": "$.data.subject", "equalTo": subject}},
                ],
            },
            "response": response,
        }));
    }

    /// The requests to a path so far, in order of arrival.
    pub fn received(&self, path: &str) -> Vec<Received> {
        let wanted = json!({"method": "POST", "urlPath": path});
        let found = http::ask(self.port, "POST", "/__admin/requests/find", Some(&wanted));
        let requests = found["requests"].as_array().unwrap();
        let mut requests: Vec<Received> = requests.iter().map(read).collect();
        requests.sort_by_key(|request| request.at);
        requests
    }

    /// The number of requests to a path so far.
    pub fn count(&self, path: &str) -> usize {
        let wanted = json!({"method": "POST", "urlPath": path});
        let found = http::ask(self.port, "POST", "/__admin/requests/count", Some(&wanted));
        usize::try_from(found["count"].as_u64().unwrap()).unwrap()
    }
}

/// Converts a request of the journal.
fn read(request: &Value) -> Received {
    let mut headers = Vec::new();
    for (name, value) in request["headers"].as_object().unwrap() {
        let values = match value {
            Value::Array(values) => values.iter().collect(),
            single => vec![single],
        };
        for value in values {
            headers.push((name.to_lowercase(), value.as_str().unwrap().to_owned()));
        }
    }
    Received {
        url: request["url"].as_str().unwrap().to_owned(),
        headers,
        body: request["body"].as_str().unwrap().to_owned(),
        protocol: request["protocol"].as_str().unwrap_or_default().to_owned(),
        at: request["loggedDate"].as_i64().unwrap(),
    }
}
