//! Functions and operators that would be called instead of those of the extension.

use super::{TRAFFIC, assert_everything_was_called, planted, traffic};
use crate::cluster::{Cluster, eventually, number};
use crate::page_statements;

/// Calls that are not counted can only be found in the text of the traffic, which calls every function for roles.
#[test]
fn the_traffic_calls_every_public_function() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let functions: Vec<String> = client
        .query(
            "SELECT DISTINCT p.proname::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid \
             WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
             AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') \
             AND p.proname LIKE 'mailroom\\_%' ORDER BY 1",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(functions.len() > 30, "{functions:?}");
    let missing: Vec<&String> = functions
        .iter()
        .filter(|name| !TRAFFIC.contains(&format!("@s@.{name}(")))
        .collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
}

#[test]
fn no_planted_overload_is_called() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "track_functions = all"]);
    let mut client = planted(&cluster);
    // A call with other types or fewer arguments gets an overload, which shows that they work.
    let error = client
        .batch_execute("SELECT public._announce(1, false)")
        .unwrap_err();
    assert!(
        format!("{error:?}").contains("a planted _announce"),
        "{error:?}"
    );
    traffic(&mut client, "public");
    drop(client);
    assert_everything_was_called(&cluster, "app");
}

#[test]
fn the_worker_calls_no_planted_overload() {
    let cluster = Cluster::start(&["mailroom.batch_timeout = 0"]);
    let mut client = planted(&cluster);
    // A new worker has no plans yet.
    let worker = cluster.worker("app");
    crate::cluster::signal("TERM", worker);
    crate::cluster::another_worker(&mut client, worker);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
             INSERT INTO accounts (email, login, status) VALUES ('b@example.com', 'b', 'active')",
        )
        .unwrap();
    client
        .batch_execute("SELECT mailroom_request_recovery('b@example.com'::text)")
        .unwrap();
    eventually("both mails", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state OPERATOR(pg_catalog.=) 'scheduled'",
        ) == 2)
            .then_some(())
    });
    // The worker records a failed batch by a separate statement.
    client
        .batch_execute(
            "ALTER TABLE outbox ADD CONSTRAINT never CHECK (false) NOT VALID; \
             INSERT INTO accounts (email, login) VALUES ('c@example.com', 'c'), ('d@example.com', 'd')",
        )
        .unwrap();
    eventually("the failure", || {
        (number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error IS NOT NULL",
        ) > 0)
            .then_some(())
    });
    client
        .batch_execute("ALTER TABLE outbox DROP CONSTRAINT never; SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the rest", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state OPERATOR(pg_catalog.=) 'scheduled'",
        ) == 4)
            .then_some(())
    });
    assert!(!cluster.log().contains("planted"), "{}", cluster.log());
}

#[test]
fn the_workers_statements_call_nothing_planted() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = planted(&cluster);
    client
        .batch_execute("SET search_path = pg_catalog, public, pg_temp")
        .unwrap();
    let statements =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/queries")).unwrap();
    let mut seen = 0;
    for entry in statements {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (types, values) = match name.as_str() {
            "answer_requests.sql" | "attach.sql" | "budget.sql" | "database_settings.sql" => {
                ("", "")
            }
            "pause_if_copied.sql" => ("(oid, text)", "(1, '3')"),
            "claim_mail.sql" => (
                "(integer, text, text[], double precision)",
                "(10, 'me', '{one}', 60)",
            ),
            "fall_back.sql" => (
                "(text, text[], double precision[], integer)",
                "('two', '{one}', '{3600}', 1)",
            ),
            "attachments.sql" => ("(bigint[])", "('{1}')"),
            "publish_transports.sql" => ("(text, text, text)", "('me', '[]', NULL)"),
            "extend_claims.sql" => ("(bigint[], text, double precision)", "('{1}', 'me', 60)"),
            "expire_claims_of_predecessors.sql" => ("(text)", "('1')"),
            "settle_sent.sql" => (
                "(bigint[], text[], text, integer[], text[])",
                "('{1}', '{p}', 'me', '{0}', '{[]}')",
            ),
            "settle_failed.sql" => (
                "(bigint[], text[], double precision[], boolean[], integer[], text, integer[], boolean[], boolean[], text[], boolean[])",
                "('{1}', '{no}', '{1}', '{f}', '{500}', 'me', '{0}', '{t}', '{f}', '{00000000-0000-8000-8000-000000000000}', '{t}')",
            ),
            "settle_released.sql" => ("(bigint[], text, integer[])", "('{1}', 'me', '{0}')"),
            "purge.sql" => ("(integer, boolean)", "(10, true)"),
            "poll.sql" => ("(integer, text[])", "(10, '{one}')"),
            "record_failure.sql" => ("(timestamptz, text, text)", "(NULL, 'poll', 'x')"),
            "run_batch.sql" => ("(integer, text)", "(10, 'poll')"),
            "maintain_outbox.sql" => ("(text[])", "('{one}')"),
            "pending_summary.sql" => ("(integer)", "(10)"),
            other => panic!("with which types does the worker run {other}?"),
        };
        let statement = std::fs::read_to_string(&path).unwrap();
        client
            .batch_execute(&format!(
                "PREPARE it {types} AS {statement}; EXECUTE it {values}; DEALLOCATE it"
            ))
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        seen += 1;
    }
    assert_eq!(seen, 20);
}

#[test]
fn the_pages_statements_call_nothing_planted() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = planted(&cluster);
    page_statements::create_roles(&mut client);
    let mut admin = cluster.connect_as("app", "page_admin");
    for (name, _, calls) in page_statements::matrix::STATEMENTS {
        for call in *calls {
            let done = page_statements::run(&mut admin, name, call, "");
            let error = done
                .err()
                .map(|error| format!("{error:?}"))
                .unwrap_or_default();
            assert!(!error.contains("planted"), "{name}({call}): {error}");
        }
    }
}
