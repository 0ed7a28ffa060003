//! Columns that an application could add to the tables of the extension: one for each word of `sql/`.
//!
//! PL/pgSQL refuses a name that may be a variable or a column (42702), and a function in SQL takes the column, without
//! an error. So no statement on a table of the extension may compare with a variable or parameter by its bare name.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::collections::BTreeMap;
use std::path::Path;

use postgres::Client;

/// Types of variables and parameters, each with a default that a statement takes without an error.
const TYPES: &[(&str, &str)] = &[
    ("text", "'x'"),
    ("name", "'x'"),
    ("integer", "1"),
    ("bigint", "1"),
    ("smallint", "1"),
    ("boolean", "true"),
    ("interval", "'1 day'"),
    ("timestamptz", "now()"),
    ("jsonb", "'{}'"),
    ("uuid", "'00000000-0000-0000-0000-000000000000'"),
    ("bytea", "''"),
    ("oid", "1"),
    ("tid", "'(0,1)'"),
    ("text[]", "'{x}'"),
    ("integer[]", "'{1}'"),
    ("bigint[]", "'{1}'"),
    ("boolean[]", "'{true}'"),
    ("interval[]", "'{1 day}'"),
    ("uuid[]", "'{}'"),
    ("tid[]", "'{}'"),
];

/// How the columns are defined.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// As text.
    Text,
    /// With the type that the name has where it is declared, and a default.
    AsDeclared,
}

/// A table has room for this part of all words: the limit is 1600 columns, and what fits into a row.
pub const PARTS: usize = 4;

fn read(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, into);
        } else if path.extension().is_some_and(|it| it == "sql") {
            let source = std::fs::read_to_string(path).unwrap();
            // Without comments.
            into.extend(
                source
                    .lines()
                    .map(|line| line.split("--").next().unwrap().to_owned() + "\n"),
            );
        }
    }
}

/// The sources, without comments.
pub fn sources() -> String {
    let mut all = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"), &mut all);
    all
}

/// Each word of the sources, with the definition of a column: as text, and as the word is declared.
fn words() -> BTreeMap<String, (String, String)> {
    let sources = sources().to_lowercase();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut all: BTreeMap<String, (String, String)> = sources
        .split(|c| !is_part(c))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_'))
        .map(|word| (word.to_owned(), ("text".to_owned(), "text".to_owned())))
        .collect();
    let parts: Vec<&str> = sources
        .split_whitespace()
        .filter(|it| *it != "constant")
        .collect();
    for pair in parts.windows(2) {
        let name = pair[0].rsplit(|c| !is_part(c)).next().unwrap();
        let declared = pair[1].trim_end_matches([',', ';', ')']);
        if let Some((known, default)) = TYPES.iter().find(|(known, _)| *known == declared)
            && let Some((_, definition)) = all.get_mut(name)
        {
            *definition = format!("{known} DEFAULT {default}");
        }
    }
    all
}

/// Adds a column for each word of one part to each table of the extension, unless the table has one of that name.
pub fn add(client: &mut Client, kind: Kind, part: usize) {
    let tables = client
        .query(
            "SELECT c.oid::regclass::text, array_agg(a.attname::text) \
             FROM pg_depend d JOIN pg_class c ON c.oid = d.objid JOIN pg_attribute a ON a.attrelid = c.oid \
             WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
             AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') AND c.relkind = 'r' GROUP BY 1",
            &[],
        )
        .unwrap();
    assert!(tables.len() > 10);
    let words = words();
    for table in tables {
        let (table, present): (String, Vec<String>) = (table.get(0), table.get(1));
        let columns: Vec<String> = words
            .iter()
            .enumerate()
            .filter(|(place, (name, _))| place % PARTS == part && !present.contains(name))
            .map(|(_, (name, (text, declared)))| match kind {
                Kind::Text => format!("ADD COLUMN \"{name}\" {text}"),
                Kind::AsDeclared => format!("ADD COLUMN \"{name}\" {declared}"),
            })
            .collect();
        client
            .batch_execute(&format!("ALTER TABLE {table} {}", columns.join(", ")))
            .unwrap();
    }
}
