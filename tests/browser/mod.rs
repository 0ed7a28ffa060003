//! A browser that looks at the page of `mailroom serve`: Debian's Chromium, driven by `browser.mjs`, which says what a request
//! may ask for and what comes back.
//!
//! `tests/run` installs it and names the directory in `MAILROOM_BROWSER`. Tests that need it are marked by `// needs: browser`.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// A browser that logs in as a role.
pub struct Browser {
    request: Value,
}

/// What came of it.
pub struct Seen(pub Value);

impl Browser {
    /// At the page of a database, as `http://127.0.0.1:8425/app`. The name is that of the files that a failure leaves in
    /// `target/log/browser`.
    pub fn new(name: &str, url: &str) -> Self {
        let mut request = json!({"name": name, "url": url});
        if let Some(logs) = std::env::var_os("MAILROOM_BROWSER_LOGS") {
            request["failures"] = logs.to_str().unwrap().into();
        }
        Self { request }
    }

    /// Logs in first.
    pub fn logged_in(mut self, role: &str, password: &str) -> Self {
        self.request["role"] = role.into();
        self.request["password"] = password.into();
        self
    }

    /// With a further member of the request: `width`, `scheme`, `shots`, `javascript`.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.request[name] = value.into();
        self
    }

    /// Does the steps, an array; panics where one fails.
    pub fn run(&self, steps: &Value) -> Seen {
        let seen = self.try_run(steps);
        assert!(seen.0["failed"].is_null(), "{:#}", seen.0["failed"]);
        seen
    }

    /// The same, where one may fail.
    pub fn try_run(&self, steps: &Value) -> Seen {
        let mut request = self.request.clone();
        request["steps"] = steps.clone();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/browser.mjs");
        let mut child = Command::new(directory_or_program("MAILROOM_NODE"))
            .arg(script)
            .arg(directory_or_program("MAILROOM_BROWSER"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(request.to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let result = serde_json::from_str(&printed);
        Seen(result.unwrap_or_else(|error| panic!("{error}: {:?}: {printed}", output.status)))
    }
}

impl Seen {
    /// What one of its members lists: `steps`, `requests`, `errors`, `violations`, `answers`.
    pub fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().unwrap()
    }

    /// The steps that opened a page, or ran axe.
    pub fn pages(&self) -> impl Iterator<Item = &Value> {
        self.list("steps")
            .iter()
            .filter(|step| !step["axe"].is_null())
    }

    /// The text, or value, that the last step with one got.
    pub fn value(&self) -> &Value {
        let steps = self.list("steps").iter().rev();
        let mut values = steps.map(|step| &step["value"]);
        values.find(|value| !value.is_null()).unwrap()
    }

    /// Fails unless nothing was asked of others, no script or policy complained, no part of a page was refused, axe found
    /// nothing serious, and no page is wider than its window.
    pub fn assert_sound(&self) {
        for name in ["requests", "errors", "violations"] {
            assert!(self.list(name).is_empty(), "{name}: {:#}", self.0[name]);
        }
        let missing = |answer: &&Value| answer["is_page"] == false;
        let missing: Vec<_> = self.list("answers").iter().filter(missing).collect();
        assert!(missing.is_empty(), "{missing:#?}");
        for page in self.pages() {
            let found = page["axe"].as_array().unwrap();
            let serious =
                |found: &&Value| found["impact"] == "serious" || found["impact"] == "critical";
            let serious: Vec<_> = found.iter().filter(serious).collect();
            assert!(serious.is_empty(), "{}: {serious:#?}", page["url"]);
            let too_wide = page["overflow"].as_u64().unwrap_or(0);
            assert_eq!(
                too_wide, 0,
                "{} is wider than its window: {page:#}",
                page["url"]
            );
        }
    }
}

fn directory_or_program(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} is not set: run the tests with `make test`, which prepares the browser")
    });
    PathBuf::from(path)
}
