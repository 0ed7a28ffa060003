//! Prism, aws-ses-v2-local and moto: providers as third parties implemented them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::http;
use super::process::Process;
use super::tls::Authority;

/// Prism: forwards the requests that an OpenAPI description allows, and refuses the others.
pub struct Prism {
    pub port: u16,
    process: Process,
}

impl Prism {
    /// Starts it in front of `upstream`, with a description from the folder that `MAILROOM_SPECS` names.
    pub fn start(description: &str, upstream: &str) -> Self {
        let mut node = super::node();
        node.arg(super::module("@stoplight/prism-cli/dist/index.js"))
            .args(["proxy", "--errors", "--host", "127.0.0.1", "--port", "0"])
            .arg(specs().join(description))
            .arg(upstream);
        let mut process = Process::start(&node);
        let port = process.port("Prism is listening on http://127.0.0.1:");
        Self { port, process }
    }

    /// The lines of its output about invalid requests and responses.
    pub fn complaints(&self) -> Vec<String> {
        let output = self.process.output();
        let faults = output
            .lines()
            .filter(|line| line.contains('✖') || line.contains('⚠'));
        faults.map(str::to_owned).collect()
    }
}

/// The folder with the providers' API descriptions.
fn specs() -> PathBuf {
    let folder = std::env::var_os("MAILROOM_SPECS").unwrap_or_else(|| {
        panic!("MAILROOM_SPECS names no folder with the API descriptions of providers")
    });
    Path::new(&folder).to_owned()
}

/// aws-ses-v2-local: SES with its bulk call.
pub struct SesLocal {
    pub port: u16,
    _process: Process,
}

impl SesLocal {
    pub fn start() -> Self {
        let mut node = super::node();
        node.arg(super::module("aws-ses-v2-local/dist/cli.js"))
            .args(["--host", "127.0.0.1", "--port", "0"]);
        let mut process = Process::start(&node);
        let port = process.port("server running at http://localhost:");
        Self {
            port,
            _process: process,
        }
    }

    /// The mails that it accepted, in order.
    pub fn mails(&self) -> Vec<Value> {
        let store = http::ask(self.port, "GET", "/store", None);
        store["emails"].as_array().unwrap().clone()
    }
}

/// HTTP/2 of Node.js, closing connections by GOAWAY while requests are in flight: see `goaway.mjs`.
pub struct Leaving {
    pub port: u16,
    process: Process,
}

impl Leaving {
    /// It closes a connection once `open` requests are in flight on it, and processes half of them.
    pub fn start(authority: &Authority, open: usize) -> Self {
        let mut node = super::node();
        node.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/counterparts/goaway.mjs"
        ))
        .args([&authority.key, &authority.chain])
        .arg(open.to_string());
        let mut process = Process::start(&node);
        let port = process.port("port ");
        Self { port, process }
    }

    /// The ids of the events that it processed, or ignored, by the word before them in its output.
    pub fn events(&self, what: &str) -> Vec<String> {
        let output = self.process.output();
        let events = output.lines().filter_map(|line| line.strip_prefix(what));
        events.map(|id| id.trim().to_owned()).collect()
    }
}

/// moto: SES, with the errors of the real service.
pub struct Moto {
    pub port: u16,
    _process: Process,
}

impl Moto {
    pub fn start() -> Self {
        let mut server: Command = super::program("python");
        server
            .arg(super::home().join("counterparts/bin/moto_server"))
            .args(["-H", "127.0.0.1", "-p", "0"])
            .env("PYTHONUNBUFFERED", "1");
        let mut process = Process::start(&server);
        let port = process.port("Running on http://127.0.0.1:");
        let moto = Self {
            port,
            _process: process,
        };
        // The first request loads the data of SES, and all others wait for that.
        moto.verify_identity("first@example.org", "eu-west-1");
        moto
    }

    /// Makes it accept mail from this address in this region.
    pub fn verify_identity(&self, address: &str, region: &str) {
        // It treats a request as one to another service if the signature does not name SES.
        let signature = format!(
            "Authorization: AWS4-HMAC-SHA256 Credential=any/20260101/{region}/ses/aws4_request, \
             SignedHeaders=host, Signature=any\r\n"
        );
        let body = json!({"EmailIdentity": address});
        let path = "/v2/email/identities";
        let (status, answer) = http::call_with(self.port, "POST", path, &signature, Some(&body));
        assert_eq!(status, 200, "{answer}");
    }

    /// The mails that it accepted.
    pub fn mails(&self) -> Vec<Value> {
        let data = http::ask(self.port, "GET", "/moto-api/data.json", None);
        data["ses"]["Message"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}
