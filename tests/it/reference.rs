//! The reference in docs/reference/ is what the catalog says. Functions, tables, views, settings, roles and SQLSTATEs
//! are generated from the catalog and from the notes in docs/reference/notes/; `make accept T=reference` writes them.
//! The pages written by hand, the lines of the log and the keys of the transports file, are compared with the sources.

mod catalog;
mod notes;
mod relations;

use std::collections::BTreeSet;
use std::fs;

use catalog::{functions, roles, sqlstates};
use notes::rows;
use relations::{relations, settings};

use crate::book::{files, read, root};
use crate::cluster::Cluster;

/// Compares a page with what it must be; if MAILROOM_ACCEPT is set, writes it first.
fn check(page: &str, wanted: &str, different: &mut Vec<String>) {
    let name = format!("docs/reference/{page}.md");
    let path = root().join(&name);
    if std::env::var_os("MAILROOM_ACCEPT").is_some() {
        fs::write(&path, wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    if found != wanted {
        let line = (0..)
            .find(|&line| found.lines().nth(line) != wanted.lines().nth(line))
            .unwrap();
        different.push(format!(
            "{name}:{}:\n  is:     {}\n  is to be: {}",
            line + 1,
            found.lines().nth(line).unwrap_or("(its end)"),
            wanted.lines().nth(line).unwrap_or("(its end)")
        ));
    }
}

#[test]
fn the_reference_is_what_the_catalog_says() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    let mut different = Vec::new();
    check("functions", &functions(&mut client), &mut different);
    let tables = relations(&mut client, "tables", "Tables", "r");
    check("tables", &tables, &mut different);
    let views = relations(&mut client, "views", "Views", "v");
    check("views", &views, &mut different);
    check("settings", &settings(&mut client), &mut different);
    check("roles", &roles(&mut client), &mut different);
    check("sqlstates", &sqlstates(&mut client), &mut different);
    assert!(
        different.is_empty(),
        "make accept T=reference writes these pages:\n{}",
        different.join("\n")
    );
}

/// The constant parts of a line of the log; values are `…`, or in capitals.
fn constant_parts(line: &str) -> Vec<String> {
    line.split('…')
        .flat_map(|part| part.split(|c: char| c.is_ascii_uppercase()))
        .map(|part| {
            part.trim_matches(|c: char| !c.is_ascii_alphanumeric())
                .to_owned()
        })
        .filter(|part| part.len() > 8)
        .collect()
}

#[test]
fn each_line_of_the_log_is_in_the_sources() {
    let mut sources = String::new();
    for (folder, extension) in [("src", "rs"), ("crates", "rs"), ("sql", "sql")] {
        for path in files(folder, extension) {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    // A string may continue on the next line, and values are in braces.
    let mut plain = String::new();
    for line in sources.lines() {
        match line.trim_start().strip_suffix('\\') {
            Some(part) => plain.push_str(part),
            None => {
                plain.push_str(line.trim_start());
                plain.push(' ');
            }
        }
    }
    let page = read("docs/reference/log-lines.md");
    let mut checked = 0;
    let mut missing = Vec::new();
    for row in rows(&page) {
        let [line, level, ..] = &row[..] else {
            panic!("{row:?}");
        };
        if level == "level"
            || row
                .iter()
                .any(|cell| cell.contains("PostgreSQL's own line"))
        {
            continue;
        }
        let parts = constant_parts(line.trim_matches('`'));
        assert!(!parts.is_empty(), "{line}");
        // The deliverer does not know which process it runs in.
        let is_there = |part: &String| {
            plain.contains(part)
                || part
                    .strip_prefix("mailroom worker")
                    .is_some_and(|part| plain.contains(part.trim_start_matches([':', ' '])))
        };
        missing.extend(parts.into_iter().filter(|part| !is_there(part)));
        checked += 1;
    }
    assert!(missing.is_empty(), "in no source: {missing:#?}");
    assert!(checked >= 30, "only {checked} lines were found");
    assert_eq!(
        constant_parts("mailroom worker works again after N failures"),
        ["mailroom worker works again after"]
    );
}

#[test]
fn each_line_of_the_log_is_explained() {
    let page = read("docs/reference/log-lines.md");
    let mut checked = 0;
    for path in files("src", "rs") {
        let source = fs::read_to_string(&path).unwrap();
        for literal in ["\"mailroom ", "\"mailroom: "] {
            for (start, _) in source.match_indices(literal) {
                let line = &source[start + 1..];
                let end = line.find(['"', '{', '\\', '(']).unwrap();
                let line = line[..end].trim_end_matches([' ', ',', ':']);
                // Shorter literals are names of processes, contexts and claimants.
                if line.len() >= 24 {
                    assert!(page.contains(line), "{}: {line}", path.display());
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 15, "only {checked} lines were found");
    // The deliverer's lines follow its name.
    let source = read("crates/core/src/deliver/runner/log_lines.rs").replace("\\\"", "'");
    let mut of_deliverer = 0;
    for call in ["self.line(", "self.warning("] {
        for part in source.split(call).skip(1) {
            let argument = part.trim_start().trim_start_matches("&format!(");
            let Some(line) = argument.trim_start().strip_prefix('"') else {
                continue;
            };
            let line = line.split('"').next().unwrap();
            let mut shown = String::new();
            for (number, piece) in line.split(['{', '}']).enumerate() {
                shown.push_str(if number % 2 == 0 { piece } else { "…" });
            }
            let shown = shown.trim_start_matches([':', ' ']).replace('\'', "\"");
            assert!(page.contains(&shown), "{shown}");
            of_deliverer += 1;
        }
    }
    assert!(of_deliverer >= 9, "only {of_deliverer} lines were found");
}

#[test]
fn each_key_of_the_transports_file_is_explained() {
    let source = files("crates/core/src", "rs")
        .into_iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .find(|text| text.contains(" KEYS: [Key;"))
        .unwrap();
    let (_, list) = source.split_once(" KEYS: [Key;").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    let mut known = BTreeSet::new();
    for entry in ["common(", "own(", "secret("] {
        for part in list.split(entry).skip(1) {
            let name = part.trim_start().strip_prefix('"').unwrap();
            known.insert(name.split('"').next().unwrap().to_owned());
        }
    }
    assert!(known.len() >= 20, "{known:?}");
    let page = read("docs/reference/transports-file.md");
    let explained: BTreeSet<String> = rows(&page)
        .iter()
        .filter_map(|row| {
            Some(
                row.first()?
                    .strip_prefix('`')?
                    .split('`')
                    .next()?
                    .to_owned(),
            )
        })
        .collect();
    assert_eq!(explained, known, "explained, and known");
}
