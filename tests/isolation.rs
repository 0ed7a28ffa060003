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
        // The tests wait most of the time.
        groups: 3,
        // The ids of requests go on, because a session may look only at requests after those that it has answered.
        prepare: Some(
            "CREATE PROCEDURE start_over() LANGUAGE sql AS $$ \
                 TRUNCATE accounts, tokens, pending, outbox, outbox_attempts, outbox_attachments, outbox_files, delivery_events, suppressions, operator_actions, job_runs, pauses, budgets, templates, attached, _jobs \
                     RESTART IDENTITY; \
                 TRUNCATE link_requests; \
                 ALTER SEQUENCE _last_seq RESTART; \
                 ALTER SEQUENCE _purged_delivery_events RESTART; \
                 ALTER SEQUENCE _purged_job_runs RESTART; \
                 ALTER SEQUENCE _purged_link_requests RESTART; \
                 ALTER SEQUENCE _purged_operator_actions RESTART; \
                 ALTER SEQUENCE _purged_outbox RESTART; \
                 ALTER SEQUENCE _purged_outbox_attempts RESTART; \
                 ALTER SEQUENCE _purged_outbox_attachments RESTART; \
                 ALTER SEQUENCE _purged_outbox_files RESTART; \
                 ALTER SEQUENCE _purged_tokens RESTART \
             $$",
        ),
    }
    .run();
}
