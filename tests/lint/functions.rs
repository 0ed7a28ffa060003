//! The part of `make lint` that runs plpgsql_check on every PL/pgSQL function of the extension, in a throw-away
//! cluster.
//!
//! Errors and warnings of any kind fail. A trigger function is checked once for each table on which it has a trigger. A
//! trigger function without a trigger would not be checked, so that fails as well. Then every function is checked again
//! with columns that an application could have added.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for the terminal that gives up on the first surprise"
)]

#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../added_columns/mod.rs"]
mod columns;

use std::process::ExitCode;

use cluster::{Cluster, number};
use postgres::Client;

/// Triggers on attached tables exist once a table is attached.
const ATTACHED: &str = "CREATE TABLE people (address text, name text); \
     SELECT mailroom_attach('people', 'address', 'name')";

/// The functions of the extension, each with the tables whose triggers call it. A trigger may lack transition tables
/// that another trigger of the same function has; the function distinguishes them by `TG_OP`.
const SUBJECTS: &str = "CREATE TEMP VIEW subjects AS \
     SELECT p.oid AS function, coalesce(t.tgrelid, 0) AS relation, max(t.tgoldtable) AS old, max(t.tgnewtable) AS new \
     FROM pg_proc p \
     JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql' \
     JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' \
     JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'mailroom' \
     LEFT JOIN pg_trigger t ON t.tgfoid = p.oid \
     GROUP BY 1, 2";

const UNCALLED: &str = "SELECT function::regprocedure::text FROM subjects JOIN pg_proc p ON p.oid = function \
     WHERE p.prorettype = 'trigger'::regtype AND relation = 0";

/// Excludes findings of the kind `performance`, which ask for STABLE although rows are locked, and `extra`, which
/// object to a constant that is never read: it is computed for the locks that this acquires.
const FINDINGS: &str = "SELECT concat_ws(' ', f.level || ':', s.function::regprocedure, \
         'on ' || nullif(s.relation, 0)::regclass, 'line ' || f.lineno, f.sqlstate, f.message, \
         f.detail, f.hint, 'in: ' || f.query) \
     FROM subjects s \
     JOIN pg_proc p ON p.oid = s.function AND (s.relation <> 0 OR p.prorettype <> 'trigger'::regtype), \
         plpgsql_check_function_tb(s.function, s.relation, fatal_errors => false, other_warnings => true, \
             extra_warnings => false, performance_warnings => false, security_warnings => true, \
             oldtable => s.old, newtable => s.new) f \
     ORDER BY s.function::regprocedure::text, s.relation, f.lineno";

/// A database with what the check needs; returns a connection to it.
fn prepare(cluster: &Cluster, database: &str) -> Client {
    let mut client = cluster.create_database(database);
    client.batch_execute(ATTACHED).unwrap();
    client
        .batch_execute(
            "CREATE SCHEMA check_tools; CREATE EXTENSION plpgsql_check SCHEMA check_tools",
        )
        .unwrap();
    client
        .batch_execute("SET search_path = public, check_tools")
        .unwrap();
    client.batch_execute(SUBJECTS).unwrap();
    client
}

/// Prints what a query finds. Returns whether that is nothing.
fn report(client: &mut Client, query: &str, before: &str) -> bool {
    let findings = client.query(query, &[]).unwrap();
    for row in &findings {
        let finding: String = row.get(0);
        println!("{before}{finding}");
    }
    findings.is_empty()
}

fn main() -> ExitCode {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = prepare(&cluster, "app");
    let count = number(&mut client, "SELECT count(DISTINCT function) FROM subjects");
    assert!(count > 0, "no function was found");
    let mut clean = report(&mut client, UNCALLED, "error: no trigger calls ");
    clean &= report(&mut client, FINDINGS, "");
    for part in 0..columns::PARTS {
        let mut client = prepare(&cluster, &format!("added_{part}"));
        columns::add(&mut client, columns::Kind::Text, part);
        clean &= report(&mut client, FINDINGS, "with added columns: ");
    }
    if clean {
        println!("{count} functions, nothing found");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
