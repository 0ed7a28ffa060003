//! Tier 1: calls each function of schema `tests` (`src/pg_test/`), in a transaction that is rolled back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;

use cluster::Cluster;

/// The number of tests in the source: a test that is missing in the database must not count as passed.
fn written() -> usize {
    [
        include_str!("../src/pg_test/key_file.rs"),
        include_str!("../src/pg_test/pending.rs"),
        include_str!("../src/pg_test/random.rs"),
        include_str!("../src/pg_test/settings.rs"),
    ]
    .iter()
    .map(|file| file.matches("#[pg_extern]").count())
    .sum()
}

#[test]
fn functions_of_schema_tests() {
    // The worker runs, as on a real server, but does not see what is never committed.
    let cluster = Cluster::start_from("MAILROOM_PG_TEST_CONFIG", &[]);
    let mut client = cluster.create_database("app");
    let names: Vec<String> = client
        .query(
            "SELECT proname::text FROM pg_proc WHERE pronamespace = 'tests'::regnamespace ORDER BY proname",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(!names.is_empty());
    assert_eq!(names.len(), written(), "{names:?}");

    let mut failed = Vec::new();
    for name in &names {
        // A session for each test, because the library keeps state in the session.
        let mut session = cluster.connect("app");
        let mut transaction = session.transaction().unwrap();
        let outcome = transaction.batch_execute(&format!("SELECT tests.{name}()"));
        // Shown if the test fails, or with --nocapture.
        match &outcome {
            Ok(()) => eprintln!("ok      {name}"),
            Err(error) => {
                eprintln!("FAILED  {name}: {}", explain(error));
                failed.push(name);
            }
        }
        // This fails if the session crashed.
        let _ = transaction.rollback();
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

fn explain(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => [Some(db.message()), db.detail(), db.where_()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n        "),
        None => error.to_string(),
    }
}
