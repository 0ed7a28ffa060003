//! Functions, roles and SQLSTATEs from the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use postgres::{Client, Row};

use super::notes::{head, notes, rows};
use crate::book::files;

/// The roles that can be granted, in the order of the columns of tables.
pub(super) const ROLES: [&str; 6] = [
    "mailroom_app",
    "mailroom_sender",
    "mailroom_collector",
    "mailroom_monitor",
    "mailroom_support",
    "mailroom_admin",
];

/// The objects of the extension in a catalog, as a condition on `oid`.
const OURS: &str = "oid IN (SELECT d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid \
     WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'mailroom')";

pub(super) fn query(client: &mut Client, query: &str) -> Vec<Row> {
    let query = query.replace("$ours", OURS);
    client
        .query(&query, &[])
        .unwrap_or_else(|error| panic!("{query}\n{error}"))
}

/// A column of a row; empty if it is NULL.
pub(super) fn text(row: &Row, column: &str) -> String {
    row.get::<_, Option<String>>(column).unwrap_or_default()
}

/// Arguments or a type, with the short names of types, and without the cast of a default that is NULL.
pub(super) fn shorter(types: &str) -> String {
    let mut shorter = types.replace("timestamp with time zone", "timestamptz");
    while let Some((before, after)) = shorter.split_once("NULL::") {
        let rest =
            after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_[]".contains(c));
        shorter = format!("{before}NULL{rest}");
    }
    shorter
}

pub(super) fn functions(client: &mut Client) -> String {
    let rows = query(
        client,
        "SELECT p.proname::text AS name, pg_get_function_arguments(p.oid) AS arguments, \
             pg_get_function_result(p.oid) AS result, obj_description(p.oid, 'pg_proc') AS comment, p.oid \
         FROM pg_proc p WHERE p.$ours AND p.proname LIKE 'mailroom\\_%'",
    );
    let mut said = BTreeMap::new();
    for row in &rows {
        let name = text(row, "name");
        let arguments = shorter(&text(row, "arguments"));
        let arguments = if arguments.len() > 70 {
            format!("\n    {}\n", arguments.replace(", ", ",\n    "))
        } else {
            arguments
        };
        let result = shorter(&text(row, "result"));
        let result = result.strip_suffix(')').map_or(result.clone(), |table| {
            if table.len() > 70 {
                let table = table.replacen('(', "(\n    ", 1);
                format!("{}\n)", table.replace(", ", ",\n    "))
            } else {
                result.clone()
            }
        });
        let mut part = format!(
            "```\n{name}({arguments}) → {result}\n```\n\n{}\n",
            text(row, "comment")
        );
        let may: Vec<String> = ROLES
            .iter()
            .filter(|role| {
                client
                    .query_one(
                        "SELECT has_function_privilege($1, $2::oid, 'EXECUTE')",
                        &[role, &row.get::<_, u32>("oid")],
                    )
                    .unwrap()
                    .get(0)
            })
            .map(|role| format!("`{role}`"))
            .collect();
        let may = if may.is_empty() {
            "superusers only".to_owned()
        } else {
            may.join(", ")
        };
        let _ = write!(part, "\nMay be executed by: {may}.\n");
        assert!(said.insert(name, part).is_none(), "an overload");
    }
    notes("functions").page("Functions", &said)
}

pub(super) fn roles(client: &mut Client) -> String {
    let mut page = head("Roles", notes("roles").introduction.trim());
    let columns: Vec<&str> = ROLES
        .iter()
        .map(|role| role.strip_prefix("mailroom_").unwrap())
        .collect();
    let header = |what: &str| {
        format!(
            "\n| {what} | {} |\n|---|{}\n",
            columns.join(" | "),
            ":-:|".repeat(ROLES.len())
        )
    };
    page.push_str("\n## Functions\n");
    page.push_str(&header("may execute"));
    let rows = query(
        client,
        "SELECT p.proname::text AS name, p.oid FROM pg_proc p WHERE p.$ours AND p.proname LIKE 'mailroom\\_%' ORDER BY p.proname",
    );
    for row in &rows {
        let _ = write!(page, "| `{}` |", text(row, "name"));
        for role in ROLES {
            let may: bool = client
                .query_one(
                    "SELECT has_function_privilege($1, $2::oid, 'EXECUTE')",
                    &[&role, &row.get::<_, u32>("oid")],
                )
                .unwrap()
                .get(0);
            let _ = write!(page, " {} |", if may { "✓" } else { "" });
        }
        page.push('\n');
    }
    page.push_str("\n## Tables and views\n\nr: SELECT, a: INSERT, w: UPDATE, d: DELETE; in parentheses: of some columns only.\n");
    page.push_str(&header("may"));
    let rows = query(
        client,
        "SELECT c.relname::text AS name, c.oid FROM pg_class c \
         WHERE c.$ours AND c.relkind IN ('r', 'v') AND c.relname NOT LIKE '\\_%' ORDER BY c.relname",
    );
    for row in &rows {
        let _ = write!(page, "| `{}` |", text(row, "name"));
        for role in ROLES {
            let mut rights = String::new();
            for (letter, privilege) in [
                ("r", "SELECT"),
                ("a", "INSERT"),
                ("w", "UPDATE"),
                ("d", "DELETE"),
            ] {
                let column = if privilege == "DELETE" {
                    "false".to_owned()
                } else {
                    format!("has_any_column_privilege($1, $2::oid, '{privilege}')")
                };
                let may = client
                    .query_one(
                        &format!(
                            "SELECT has_table_privilege($1, $2::oid, '{privilege}'), {column}"
                        ),
                        &[&role, &row.get::<_, u32>("oid")],
                    )
                    .unwrap();
                match (may.get(0), may.get(1)) {
                    (true, _) => rights.push_str(letter),
                    (false, true) => {
                        let _ = write!(rights, "({letter})");
                    }
                    (false, false) => {}
                }
            }
            let _ = write!(page, " {rights} |");
        }
        page.push('\n');
    }
    page
}
pub(super) fn sqlstates(client: &mut Client) -> String {
    let notes_on = notes("sqlstates");
    let introduction = notes_on.introduction.split("\n|").next();
    let mut page = head("SQLSTATEs", introduction.unwrap_or_default().trim());
    page.push_str("\n| SQLSTATE | condition | means | raised by |\n|---|---|---|---|\n");
    let functions = notes("functions");
    for (_, name, note) in &functions.sections {
        let mut codes: Vec<&str> = codes(note).collect();
        codes.sort_unstable();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all, "{name} has one SQLSTATE for two errors");
    }
    let mut explained = BTreeSet::new();
    for row in rows(&notes_on.introduction).iter().skip(1) {
        let [code, condition, meaning] = &row[..] else {
            panic!("three cells: {row:?}");
        };
        let name = condition.trim_matches('`');
        let state = sqlstate(client, name);
        assert_eq!(&format!("`{state}`"), code, "{name}");
        explained.insert(state);
        let raised_by: Vec<String> = functions
            .sections
            .iter()
            .filter(|(_, _, note)| codes(note).any(|found| found == code))
            .map(|(_, name, _)| format!("[`{name}`](functions.md#{name})"))
            .collect();
        let _ = writeln!(
            page,
            "| {code} | {condition} | {meaning} | {} |",
            raised_by.join(", ")
        );
    }
    assert_eq!(explained, raised(client), "explained, and raised");
    page
}

/// The SQLSTATEs in the list of errors of a function, in backticks.
fn codes(note: &str) -> impl Iterator<Item = &str> {
    let is_code = |found: &&str| {
        found.len() == 7
            && found
                .chars()
                .all(|c| c == '`' || c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    note.lines()
        .filter_map(|line| line.strip_prefix("- ")?.split_once(':'))
        .flat_map(|(codes, _)| codes.split(", "))
        .filter(is_code)
}

/// The SQLSTATE of a condition of PL/pgSQL.
fn sqlstate(client: &mut Client, condition: &str) -> String {
    let error = client
        .batch_execute(&format!("DO $$ BEGIN RAISE {condition}; END $$"))
        .unwrap_err();
    let code = error.as_db_error().unwrap().code().code().to_owned();
    // PL/pgSQL raises this for an unknown condition.
    assert!(
        code != "42704" || condition == "undefined_object",
        "there is no condition {condition}"
    );
    code
}

/// The SQLSTATEs that functions of the extension and its library raise or log.
fn raised(client: &mut Client) -> BTreeSet<String> {
    let bodies = query(
        client,
        "SELECT p.prosrc AS body FROM pg_proc p WHERE p.$ours",
    );
    let mut conditions = BTreeSet::new();
    let mut found = BTreeSet::new();
    for body in &bodies {
        let body = text(body, "body");
        for part in body.split("RAISE ").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            conditions.insert(part[..end.unwrap()].to_owned());
        }
        // A SQLSTATE that is passed to a function, which raises it.
        for part in body
            .split("'::text")
            .filter_map(|part| part.rsplit('\'').next())
        {
            let is_code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
            if part.len() == 5 && part.chars().all(is_code) {
                found.insert(part.to_owned());
            }
        }
    }
    // The library names the SQLSTATE of a message that cannot be scheduled, which _refuse raises.
    if fs::read_to_string("src/outbox/judge.rs")
        .unwrap()
        .contains("\"22P02\"")
    {
        found.insert("22P02".to_owned());
    }
    for path in files("src", "rs") {
        if path.ends_with("pg_test.rs") || path.ends_with("tests.rs") {
            continue;
        }
        for part in fs::read_to_string(path).unwrap().split("ERRCODE_").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            conditions.insert(part[..end.unwrap()].to_lowercase());
        }
    }
    // RAISE EXCEPTION, and conditions that are no errors, or bugs.
    for none in ["", "successful_completion", "warning", "internal_error"] {
        conditions.remove(none);
    }
    found.extend(
        conditions
            .iter()
            .map(|condition| sqlstate(client, condition)),
    );
    found
}
