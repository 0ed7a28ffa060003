//! The programs of others that mailroom is measured against: pgmq, graphile-worker, and wrk, and the server in Node.js
//! that the delivery benches post to. `tests/run` installs them.
//!
//! pg_net, which posts from within the server as mailroom does, is not among them: it comes as source alone, and neither
//! Debian nor npm or PyPI has it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::Client;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::ground;
use crate::http;
use crate::process::{self, Process};

/// Node.js with a script of benches/partners.
fn node(script: &str) -> Command {
    let mut command = Command::new(variable("MAILROOM_NODE"));
    command.arg(own(script));
    command
}

fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .unwrap_or_else(|| panic!("{name} is not set: use `make bench`, which sets it"))
        .into()
}

/// A file of benches/partners.
fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("benches/partners")
        .join(name)
}

/// The SQL of pgmq, which its crate brings; cargo has its source.
pub fn pgmq_sql() -> String {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--manifest-path"])
        .arg(own("pgmq/Cargo.toml"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let package = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["name"] == "pgmq")
        .unwrap();
    let source = package["manifest_path"].as_str().unwrap();
    let path = source.replace("Cargo.toml", "src/install/embedded/sql/pgmq.sql");
    std::fs::read_to_string(path).unwrap()
}

/// Makes a database with graphile-worker's schema, installed by its own program.
pub fn create_graphile_database(cluster: &Cluster, database: &str) -> Client {
    let client = ground::create_plain_database(cluster, database, &[]);
    let program = "node_modules/graphile-worker/dist/cli.js";
    let output = Command::new(variable("MAILROOM_NODE"))
        .arg(variable("MAILROOM_PARTNERS").join(program))
        .args(["--schema-only", "--connection"])
        .arg(address(cluster, database))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    client
}

/// Starts graphile-worker with the tasks of graphile.mjs: `store`, and `deliver` to this endpoint.
pub fn start_graphile(cluster: &Cluster, database: &str, endpoint: &str) -> Process {
    let mut command = node("graphile.mjs");
    command
        .arg(variable("MAILROOM_PARTNERS"))
        .arg(address(cluster, database))
        .arg(endpoint);
    let mut process = Process::start(&command);
    process.printed("graphile-worker", |line| {
        line.contains("graphile-worker is ready").then_some(())
    });
    process
}

fn address(cluster: &Cluster, database: &str) -> String {
    let socket = cluster.socket().display();
    format!("postgresql://postgres@localhost/{database}?host={socket}")
}

/// The provider's server.
pub struct Provider {
    port: u16,
    _process: Process,
}

impl Provider {
    /// Does nothing but answer.
    pub fn start_plain() -> Self {
        Self::start(&node("server.mjs"))
    }

    /// Notes when it has read a mail.
    pub fn with_times() -> Self {
        Self::start(node("server.mjs").arg("--times"))
    }

    /// Writes the first requests, so many, to a file.
    pub fn capturing(file: &Path, count: i64) -> Self {
        Self::start(
            node("server.mjs")
                .arg("--capture")
                .arg(file)
                .arg(count.to_string()),
        )
    }

    fn start(command: &Command) -> Self {
        let mut process = Process::start(command);
        Self {
            port: process.port("port "),
            _process: process,
        }
    }

    /// Where it takes mails.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// How many requests it has answered.
    pub fn taken(&self) -> i64 {
        http::ask(self.port, "GET", "/taken", None)
            .as_i64()
            .unwrap()
    }

    /// When it had read which mail, since this was last asked: nanoseconds of CLOCK_MONOTONIC.
    pub fn times(&self) -> HashMap<i64, i64> {
        let times = http::ask(self.port, "GET", "/times", None);
        let times = times.as_object().unwrap().iter();
        times
            .map(|(number, time)| (number.parse().unwrap(), time.as_i64().unwrap()))
            .collect()
    }

    /// Requests per second that wrk makes with one thread and so many connections, replaying a file of captured ones.
    pub fn wrk(&self, captured: &Path, connections: usize, seconds: u32) -> f64 {
        let output = Command::new("wrk")
            .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s")])
            .arg("-s")
            .arg(own("replay.lua"))
            .args([&self.endpoint(), "--"])
            .arg(captured)
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        let failed = ["Non-2xx", "Socket errors"]
            .iter()
            .any(|sign| report.contains(sign));
        assert!(output.status.success() && !failed, "{output:?}");
        let rate = report
            .lines()
            .find_map(|line| line.strip_prefix("Requests/sec:"))
            .and_then(|rate| rate.trim().parse().ok());
        rate.unwrap_or_else(|| panic!("no rate in:\n{report}"))
    }
}

/// A new directory for files of this run.
pub fn directory() -> PathBuf {
    process::directory()
}
