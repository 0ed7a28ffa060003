//! Tier 1: calls each function of schema `tests` (`src/pg_test/`), in a transaction that is rolled back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;

use cluster::Cluster;

/// How many there are, by the source: one that is missing in the database must not pass for one that passed.
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
    // The worker is there, as in a real server, but keeps its hands off what is never committed.
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
        // A session of its own: what the library remembers is remembered by the session.
        let mut session = cluster.connect("app");
        let mut transaction = session.transaction().unwrap();
        let outcome = transaction.batch_execute(&format!("SELECT tests.{name}()"));
        // The one thing that counts must be visible without --nocapture, too: hence standard error.
        match &outcome {
            Ok(()) => eprintln!("ok      {name}"),
            Err(error) => {
                eprintln!("FAILED  {name}: {}", explain(error));
                failed.push(name);
            }
        }
        // After a crash there is nothing to roll back.
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
