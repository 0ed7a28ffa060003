//! Tables, views and settings from the catalog.

use std::collections::BTreeMap;
use std::fmt::Write;

use postgres::Client;

use super::catalog::{ROLES, query, shorter, text};
use super::notes::{cell, code, notes};

/// Tables or views, selected by the kind of relation: columns, constraints and grants.
pub(super) fn relations(client: &mut Client, page: &str, title: &str, kind: &str) -> String {
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
        // NOT NULL is a separate constraint since PostgreSQL 18; it is a column of the table above.
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

/// The privileges on a relation that were granted.
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

pub(super) fn settings(client: &mut Client) -> String {
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

/// A number in the largest unit of which it is a multiple.
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
