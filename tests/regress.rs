//! Tier 2: expected outputs of the public SQL interface, of privileges on it, and of its errors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;
mod golden;

#[test]
fn goldens() {
    golden::Suite {
        program: "regress/pg_regress",
        directory: "pg_regress",
        inputs: "sql",
        extension: "sql",
        // Each test creates what it needs and drops it again.
        groups: 2,
        prepare: None,
    }
    .run();
}
