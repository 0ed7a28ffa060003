//! Tier 2: goldens of the public SQL surface, of who may use it, and of what it says when it refuses.

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
        // Each makes what it needs and takes it away again.
        groups: 2,
        prepare: None,
    }
    .run();
}
