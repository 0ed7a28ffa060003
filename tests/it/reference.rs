//! The reference in docs/reference/ is what the catalog says. Functions, tables, views, settings, roles and SQLSTATEs are
//! generated from it and from the notes in docs/reference/notes/; `make accept T=reference` writes them. What is written
//! by hand there, the lines of the log and the keys of the transports file, is compared with the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use crate::book::{files, read, root};
use crate::cluster::Cluster;
use postgres::{Client, Row};

/// The roles to be granted, in the order of the columns of tables.
const ROLES: [&str; 6] = [
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

fn query(client: &mut Client, query: &str) -> Vec<Row> {
    let query = query.replace("$ours", OURS);
    client
        .query(&query, &[])
        .unwrap_or_else(|error| panic!("{query}\n{error}"))
}

/// A column of a row, which may be NULL.
fn text(row: &Row, column: &str) -> String {
    row.get::<_, Option<String>>(column).unwrap_or_default()
}

/// A text as it stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A name or an expression as code in a cell; nothing for nothing.
fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{}`", cell(text))
    }
}

/// The parts of the notes of a page: the text before the first heading, and each heading with its text.
struct Notes {
    introduction: String,
    /// The level, the title and the text.
    sections: Vec<(usize, String, String)>,
}

fn notes(page: &str) -> Notes {
    let mut notes = Notes {
        introduction: String::new(),
        sections: Vec::new(),
    };
    let mut is_code = false;
    for line in read(&format!("docs/reference/notes/{page}.md")).lines() {
        is_code ^= line.starts_with("```");
        if !is_code && let Some((marks, title)) = line.split_once("# ") {
            notes
                .sections
                .push((marks.len() + 1, title.to_owned(), String::new()));
            continue;
        }
        let text = match notes.sections.last_mut() {
            Some((_, _, text)) => text,
            None => &mut notes.introduction,
        };
        text.push_str(line);
        text.push('\n');
    }
    notes
}

impl Notes {
    /// The names that are explained, which are headings of the third level.
    fn names(&self) -> BTreeSet<&str> {
        self.sections
            .iter()
            .filter(|(level, _, _)| *level == 3)
            .map(|(_, name, _)| name.as_str())
            .collect()
    }

    /// The page: with each name what the catalog says of it, before its note.
    fn page(&self, title: &str, said: &BTreeMap<String, String>) -> String {
        let missing: Vec<_> = said
            .keys()
            .filter(|name| !self.names().contains(name.as_str()))
            .collect();
        assert!(
            missing.is_empty(),
            "{title}: there are no notes on {missing:?}"
        );
        let mut page = head(title, self.introduction.trim());
        for (level, name, note) in &self.sections {
            let _ = write!(page, "\n{} {name}\n", "#".repeat(*level));
            if *level == 3 {
                let said = said
                    .get(name)
                    .unwrap_or_else(|| panic!("{title}: there is no {name}"));
                let _ = write!(page, "\n{said}");
            }
            if !note.trim().is_empty() {
                let _ = write!(page, "\n{}\n", note.trim());
            }
        }
        page
    }
}

/// The beginning of a page that is generated.
fn head(title: &str, introduction: &str) -> String {
    format!(
        "<!-- Generated from the catalog and docs/reference/notes/ by `make accept T=reference`. -->\n\n# {title}\n\n{introduction}\n"
    )
}

/// Arguments or a type, with the name of a type that people write, and without that of a default that is none.
fn shorter(types: &str) -> String {
    let mut shorter = types.replace("timestamp with time zone", "timestamptz");
    while let Some((before, after)) = shorter.split_once("NULL::") {
        let rest =
            after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_[]".contains(c));
        shorter = format!("{before}NULL{rest}");
    }
    shorter
}

fn functions(client: &mut Client) -> String {
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

/// Tables or views, by the kind of relation: columns, constraints and grants.
fn relations(client: &mut Client, page: &str, title: &str, kind: &str) -> String {
    let rows = query(
        client,
        &format!(
            "SELECT c.oid, c.relname::text AS name, obj_description(c.oid, 'pg_class') AS comment \
             FROM pg_class c WHERE c.$ours AND c.relkind = '{kind}' AND c.relname NOT LIKE '\\_%'"
        ),
    );
    let mut said = BTreeMap::new();
    for row in &rows {
        let oid: u32 = row.get("oid");
        let mut part = format!("{}\n\n", text(row, "comment"));
        let columns = query(
            client,
            &format!(
                "SELECT a.attname::text AS name, format_type(coalesce(nullif(b.typbasetype, 0), nullif(t.typbasetype, 0), t.oid), a.atttypmod) AS type, \
                     pg_get_expr(d.adbin, d.adrelid) AS value, a.attnotnull AS is_needed, \
                     col_description(a.attrelid, a.attnum) AS comment \
                 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype \
                 LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
                 WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
            ),
        );
        if kind == "v" {
            part.push_str("| column | type | |\n|---|---|---|\n");
        } else {
            part.push_str("| column | type | NULL | default | |\n|---|---|---|---|---|\n");
        }
        for column in &columns {
            let _ = write!(
                part,
                "| `{}` | {} |",
                text(column, "name"),
                shorter(&text(column, "type"))
            );
            if kind != "v" {
                let null = if column.get("is_needed") { "no" } else { "" };
                let _ = write!(part, " {null} | {} |", code(&text(column, "value")));
            }
            let _ = writeln!(part, " {} |", cell(&text(column, "comment")));
        }
        // NOT NULL is a constraint of its own since PostgreSQL 18, and a column of the table above.
        let constraints = query(
            client,
            &format!(
                "SELECT conname::text AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint \
                 WHERE conrelid = {oid} AND contype NOT IN ('n', 't') \
                 UNION ALL \
                 SELECT c.conname::text, format('%s: %s', string_agg(a.attname, ', ' ORDER BY a.attnum), pg_get_constraintdef(c.oid)) \
                 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
                 JOIN pg_constraint c ON c.contypid IN (t.oid, t.typbasetype) \
                 WHERE t.typtype = 'd' AND c.contype = 'c' AND a.attrelid = {oid} AND a.attnum > 0 GROUP BY c.oid, c.conname \
                 UNION ALL \
                 SELECT i.indexrelid::regclass::text, regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING btree', 'UNIQUE') \
                 FROM pg_index i WHERE i.indrelid = {oid} AND i.indisunique \
                   AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid) \
"
            ),
        );
        let constraints: BTreeMap<String, String> = constraints
            .iter()
            .map(|row| (text(row, "name"), text(row, "definition")))
            .collect();
        if !constraints.is_empty() {
            part.push_str("\n| constraint | |\n|---|---|\n");
        }
        for (name, definition) in &constraints {
            let _ = writeln!(part, "| `{name}` | {} |", code(definition));
        }
        let _ = write!(part, "\n{}", grants(client, oid));
        said.insert(text(row, "name"), part);
    }
    let mut page = notes(page).page(title, &said);
    if kind == "r" {
        page.push_str(&types(client));
    }
    page
}

/// Who may do what with a relation, as it was granted.
fn grants(client: &mut Client, relation: u32) -> String {
    let rows = query(
        client,
        &format!(
            "SELECT r.rolname::text AS role, g.privilege, string_agg(g.part, ', ' ORDER BY g.attnum) AS columns \
             FROM ( \
                 SELECT a.grantee, a.privilege_type AS privilege, NULL AS part, 0 AS attnum \
                 FROM pg_class c CROSS JOIN aclexplode(c.relacl) a WHERE c.oid = {relation} AND a.grantee <> c.relowner \
                 UNION ALL \
                 SELECT a.grantee, a.privilege_type, format('`%s`', t.attname), t.attnum \
                 FROM pg_attribute t CROSS JOIN aclexplode(t.attacl) a WHERE t.attrelid = {relation} AND t.attnum > 0 \
             ) g JOIN pg_roles r ON r.oid = g.grantee WHERE r.rolname <> 'mailroom_definer' \
             GROUP BY 1, 2 ORDER BY 1, 2"
        ),
    );
    let mut granted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &rows {
        let columns = match text(row, "columns") {
            columns if columns.is_empty() => columns,
            columns => format!(" ({columns})"),
        };
        let privilege = format!("{}{columns}", text(row, "privilege"));
        granted
            .entry(text(row, "role"))
            .or_default()
            .push(privilege);
    }
    let mut said = String::from("Granted to:");
    if granted.is_empty() {
        said.push_str(" no role.\n");
    } else {
        said.push_str("\n\n");
    }
    for role in ROLES {
        if let Some(privileges) = granted.get(role) {
            let _ = writeln!(said, "- `{role}`: {}", privileges.join("; "));
        }
    }
    said
}

/// The enumerations.
fn types(client: &mut Client) -> String {
    let rows = query(
        client,
        "SELECT t.typname::text AS name, obj_description(t.oid, 'pg_type') AS comment, \
             (SELECT string_agg(format('`%s`', e.enumlabel), ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid) \
                 AS labels \
         FROM pg_type t WHERE t.$ours AND t.typtype = 'e' ORDER BY t.typname",
    );
    let mut said = String::from("\n## Types\n\n| enumeration | values | |\n|---|---|---|\n");
    for row in &rows {
        let (name, labels) = (text(row, "name"), text(row, "labels"));
        let _ = writeln!(
            said,
            "| `{name}` | {labels} | {} |",
            cell(&text(row, "comment"))
        );
    }
    said
}

fn settings(client: &mut Client) -> String {
    let rows = query(
        client,
        "SELECT name, vartype, boot_val, unit, min_val, max_val, array_to_string(enumvals, ', ') AS enumvals, context, \
             short_desc, extra_desc FROM pg_settings WHERE name LIKE 'mailroom.%'",
    );
    let mut said = BTreeMap::new();
    for row in &rows {
        let mut part = format!(
            "{} {}\n\n",
            text(row, "short_desc"),
            text(row, "extra_desc")
        );
        let unit = text(row, "unit");
        let (value, kind) = (text(row, "boot_val"), text(row, "vartype"));
        let value = match (value.as_str(), kind.as_str()) {
            ("", _) => "empty".to_owned(),
            (_, "integer") => in_units(&value, &unit),
            _ => format!("`{value}`"),
        };
        let _ = writeln!(part, "- Default: {value}");
        let bounds = match kind.as_str() {
            "integer" => format!(
                "from {} to {}",
                in_units(&text(row, "min_val"), &unit),
                in_units(&text(row, "max_val"), &unit)
            ),
            "enum" => text(row, "enumvals"),
            "bool" => "on, off".to_owned(),
            _ => "text".to_owned(),
        };
        let unit = match unit.as_str() {
            "" => String::new(),
            unit => format!("; a number without a unit is in {unit}"),
        };
        let _ = writeln!(part, "- Values: {bounds}{unit}");
        let context = match text(row, "context").as_str() {
            "postmaster" => "`postgresql.conf` or `ALTER SYSTEM`, and a restart of the server",
            "sighup" => "`postgresql.conf` or `ALTER SYSTEM`, and a reload",
            "superuser" => {
                "a superuser: `postgresql.conf`, `ALTER SYSTEM`, `ALTER DATABASE … SET`, `SET`; the worker follows on reload"
            }
            other => panic!("what is the context {other}?"),
        };
        let _ = writeln!(part, "- Changed by: {context}");
        said.insert(text(row, "name"), part);
    }
    notes("settings").page("Settings", &said)
}

/// A number of units as people write it.
fn in_units(number: &str, unit: &str) -> String {
    let steps: &[(&str, u64)] = match unit {
        "ms" => &[
            ("d", 86_400_000),
            ("h", 3_600_000),
            ("min", 60_000),
            ("s", 1_000),
            ("ms", 1),
        ],
        "s" => &[("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)],
        "kB" => &[("MB", 1_024), ("kB", 1)],
        "" => return format!("`{number}`"),
        other => panic!("what is the unit {other}?"),
    };
    let number: u64 = number.parse().unwrap();
    if number == 0 {
        return "`0`".to_owned();
    }
    let &(unit, size) = steps
        .iter()
        .find(|(_, size)| number.is_multiple_of(*size))
        .unwrap();
    format!("`{}{unit}`", number / size)
}

fn roles(client: &mut Client) -> String {
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

/// The rows of the tables in a text, by their cells.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|--"))
        .map(|line| {
            let line = line.trim_matches('|').replace("\\|", "\u{1}");
            line.split('|')
                .map(|cell| cell.trim().replace('\u{1}', "|"))
                .collect()
        })
        .collect()
}

fn sqlstates(client: &mut Client) -> String {
    let notes_on = notes("sqlstates");
    let introduction = notes_on.introduction.split("\n|").next();
    let mut page = head("SQLSTATEs", introduction.unwrap_or_default().trim());
    page.push_str("\n| SQLSTATE | condition | means | raised by |\n|---|---|---|---|\n");
    let functions = notes("functions");
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
            .filter(|(_, _, note)| {
                note.lines()
                    .filter_map(|line| line.strip_prefix("- ")?.split_once(':'))
                    .any(|(codes, _)| codes.split(", ").any(|found| found == code))
            })
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

/// The SQLSTATE of a condition of PL/pgSQL's.
fn sqlstate(client: &mut Client, condition: &str) -> String {
    let error = client
        .batch_execute(&format!("DO $$ BEGIN RAISE {condition}; END $$"))
        .unwrap_err();
    let code = error.as_db_error().unwrap().code().code().to_owned();
    // What PL/pgSQL says of a name that is no condition.
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
        // An argument of a function that raises it.
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
    for path in files("src", "rs") {
        if path.ends_with("pg_test.rs") || path.ends_with("tests.rs") {
            continue;
        }
        for part in fs::read_to_string(path).unwrap().split("ERRCODE_").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            conditions.insert(part[..end.unwrap()].to_lowercase());
        }
    }
    // RAISE EXCEPTION, and what is no error or a bug.
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

/// Compares a page with what it is to be; with MAILROOM_ACCEPT, writes it.
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

/// The parts of a line of the log that are the same in each: what stands for values is `…`, or in capitals.
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
    // A string may go on in the next line, and values are in braces.
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
        // The deliverer does not know what it is part of.
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
                // Names of processes, contexts and claimants are shorter, and have no verb.
                if line.len() >= 24 {
                    assert!(page.contains(line), "{}: {line}", path.display());
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 15, "only {checked} lines were found");
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
