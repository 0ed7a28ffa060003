//! An upgrade script and the library that the server runs: files are replaced before the server restarts, and the server
//! restarts before ALTER EXTENSION.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use postgres::Client;
use postgres::error::SqlState;

use super::{QUIET, Scripts, VERSION, differences, kept, snapshot};
use crate::cluster::{Cluster, eventually, number};

/// The first statement of the upgrade script to a version.
pub(super) fn requirement(version: &str) -> String {
    format!("SELECT @extschema@._require_library('{version}'::pg_catalog.text);\n")
}

/// Whether an upgrade script begins with the check, after comments.
fn requires_its_library(script: &str, version: &str) -> bool {
    let statements: String = script
        .lines()
        .filter(|line| !line.starts_with("--") && !line.trim().is_empty())
        .map(|line| line.to_owned() + "\n")
        .collect();
    statements.starts_with(&requirement(version))
}

#[test]
fn each_upgrade_script_first_requires_its_library() {
    let script = "-- From A to B.\n\n".to_owned() + &requirement("1.2.3") + "SELECT 1;\n";
    assert!(requires_its_library(&script, "1.2.3"));
    assert!(!requires_its_library(&script, "1.2.4"));
    assert!(!requires_its_library("SELECT 1;\n", "1.2.3"));
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("sql")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((_, version)) = name.rsplit_once("--") else {
            continue;
        };
        let version = version.strip_suffix(".sql").unwrap();
        let script = fs::read_to_string(&path).unwrap();
        assert!(requires_its_library(&script, version), "{name}");
    }
}

/// The new files are there, and the server runs the library of before.
#[test]
fn new_sql_is_refused_while_the_server_runs_an_older_library() {
    let scripts = Scripts::new();
    let new = "CREATE FUNCTION @extschema@._new() RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', '_new_wrapper';\n";
    scripts.write(
        &format!("mailroom--{VERSION}--99.0.0.sql"),
        &(requirement("99.0.0") + new),
    );
    scripts.write("mailroom--98.0.0.sql", &(scripts.current() + new));
    for settings in [&["mailroom.batch_limit = 1"], QUIET] {
        let cluster = Cluster::start_in(&scripts.bin, settings);
        let mut client = cluster.connect("postgres");
        is_refused(&mut client, "CREATE EXTENSION mailroom VERSION '98.0.0'");
        client.batch_execute("CREATE EXTENSION mailroom").unwrap();
        let before = snapshot(&mut client);
        is_refused(&mut client, "ALTER EXTENSION mailroom UPDATE TO '99.0.0'");
        assert_eq!(
            differences(&before, &snapshot(&mut client)),
            Vec::<String>::new()
        );
        client
            .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
            .unwrap();
        if settings == QUIET {
            continue;
        }
        eventually("the mail", || {
            (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
        });
    }
}

/// Because the library is older.
fn is_refused(client: &mut Client, statement: &str) {
    let refusal = client.batch_execute(statement).unwrap_err();
    let refusal = refusal.as_db_error().unwrap();
    assert_eq!(
        refusal.code(),
        &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{refusal}"
    );
    assert_eq!(
        refusal.message(),
        format!("the server still runs library {VERSION} of mailroom")
    );
    assert!(refusal.hint().unwrap().starts_with("Restart the server"));
}

/// The C functions of the installed extension: each symbol with what it takes and returns.
fn c_functions(client: &mut Client) -> BTreeMap<String, String> {
    let rows = client
        .query(
            "SELECT p.prosrc, pg_get_function_identity_arguments(p.oid) || ' -> ' || pg_get_function_result(p.oid) \
             FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' \
             JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'mailroom' \
             WHERE p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'c')",
            &[],
        )
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// The symbols that two versions declare with different arguments or results. That none vanishes is checked whenever
/// the library is built, by `check_symbols` of `tests/run.d/stage.sh`.
fn changed(released: &BTreeMap<String, String>, current: &BTreeMap<String, String>) -> Vec<String> {
    let differs =
        |symbol: &String, types: &String| current.get(symbol).is_some_and(|now| now != types);
    released
        .iter()
        .filter(|(symbol, types)| differs(symbol, types))
        .map(|(symbol, types)| format!("{symbol}: {types}"))
        .collect()
}

/// After the restart with a new library, and until ALTER EXTENSION, the SQL of before calls it.
#[test]
fn a_released_c_function_keeps_its_arguments() {
    let scripts = Scripts::new();
    let cluster = Cluster::start_in(&scripts.bin, QUIET);
    let mut client = cluster.connect("postgres");
    let mut declared = |version: &str| {
        client
            .batch_execute(&format!("CREATE EXTENSION mailroom VERSION '{version}'"))
            .unwrap();
        let functions = c_functions(&mut client);
        client.batch_execute("DROP EXTENSION mailroom").unwrap();
        functions
    };
    let current = declared(VERSION);
    assert_eq!(current["_require_library_wrapper"], "version text -> void");
    // A changed one is found.
    let script = scripts.current().replace(
        "_visible(value text) RETURNS text",
        "_visible(value text) RETURNS varchar",
    );
    scripts.write("mailroom--0.0.8.sql", &script);
    assert_eq!(
        changed(&declared("0.0.8"), &current),
        ["_visible_wrapper: value text -> character varying"]
    );
    for (version, script) in kept() {
        if version != VERSION {
            scripts.write(&format!("mailroom--{version}.sql"), &script);
        }
        assert_eq!(
            changed(&declared(&version), &current),
            Vec::<String>::new(),
            "{version}"
        );
    }
}
