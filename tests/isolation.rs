//! Tier 3: everything that two sessions can do to each other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;
mod golden;

#[test]
fn specs() {
    golden::Suite {
        program: "isolation/pg_isolation_regress",
        directory: "isolation",
        inputs: "specs",
        extension: "spec",
    }
    .run();
}
