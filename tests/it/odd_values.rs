//! Every function of the extension, public or internal, called with values that nobody would pass: NULL, extremes,
//! infinity, nothing, very much, and octets that are no text. Each call ends with an error or with rows; the session and
//! the server outlive them all.
//!
//! Which functions there are and which types they take is read from the catalog, so a new one is tried without being
//! written down here. The calls are the same in each run.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, PATIENCE, Stop, number};
use postgres::Client;

/// A function, as its calls name it, and what it takes.
struct Function {
    name: String,
    arguments: Vec<Argument>,
}

struct Argument {
    /// As a cast names it.
    r#type: String,
    /// The type's own name, or that of what a domain is over; `_` before it makes it an array.
    base: String,
    /// The labels of an enum, as SQL literals.
    labels: Vec<String>,
}

/// The functions of the extension, those of triggers among them.
fn functions(client: &mut Client) -> Vec<Function> {
    let rows = client
        .query(
            "WITH RECURSIVE ours AS ( \
                 SELECT p.oid, p.proname, p.pronamespace, p.proargtypes \
                 FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid \
                 WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
                 AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') \
             ), bases AS ( \
                 SELECT oid, oid AS base FROM pg_type WHERE typbasetype = 0 \
                 UNION ALL \
                 SELECT t.oid, b.base FROM pg_type t JOIN bases b ON b.oid = t.typbasetype \
             ) \
             SELECT o.oid::bigint, format('%I.%I', n.nspname, o.proname), \
                 format_type(u.type, NULL), t.typname::text, \
                 ARRAY(SELECT quote_literal(e.enumlabel) FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) \
             FROM ours o JOIN pg_namespace n ON n.oid = o.pronamespace \
             LEFT JOIN unnest(o.proargtypes) WITH ORDINALITY u (type, place) ON true \
             LEFT JOIN bases b ON b.oid = u.type LEFT JOIN pg_type t ON t.oid = b.base \
             ORDER BY o.proname, o.oid, u.place",
            &[],
        )
        .unwrap();
    let mut functions: Vec<(i64, Function)> = Vec::new();
    for row in rows {
        let oid: i64 = row.get(0);
        if functions.last().is_none_or(|(last, _)| *last != oid) {
            let function = Function {
                name: row.get(1),
                arguments: Vec::new(),
            };
            functions.push((oid, function));
        }
        if let Some(r#type) = row.get::<_, Option<String>>(2) {
            let (_, function) = functions.last_mut().unwrap();
            function.arguments.push(Argument {
                r#type,
                base: row.get(3),
                labels: row.get(4),
            });
        }
    }
    functions
        .into_iter()
        .map(|(_, function)| function)
        .collect()
}

/// Octets that are not UTF-8, for databases where any are text: cut off, too long, a surrogate, never valid.
const NO_TEXT: [&str; 4] = [
    r"E'a\xc3'",
    r"E'\xc0\x80b'",
    r"E'\xed\xa0\x80'",
    r"E'\xff\xfe@\xff.example'",
];

/// What a database's encoding lets a text be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Octets {
    Utf8,
    /// Any but zero.
    Any,
}

impl Argument {
    /// A value that there is nothing to say against, for the places that are not being tried.
    fn plain(&self) -> String {
        let value = match self.base.as_str() {
            _ if !self.labels.is_empty() => &self.labels[0],
            "int2" | "int4" | "int8" | "oid" | "float8" | "numeric" => "'1'",
            "bool" => "'t'",
            "jsonb" | "json" => "'{}'",
            "bytea" => "decode(repeat('07', 32), 'hex')",
            "timestamptz" => "now()",
            "interval" => "'1 min'",
            "text" | "varchar" | "name" => "'a@example.com'",
            "_text" | "_varchar" => "'{a@example.com}'",
            "_int8" | "_int4" => "'{1}'",
            "regclass" => "'accounts'",
            "tid" => "'(0,1)'",
            _ => "NULL",
        };
        self.cast(value)
    }

    fn cast(&self, value: &str) -> String {
        format!("({value})::{}", self.r#type)
    }

    /// The odd ones.
    fn odd(&self, octets: Octets) -> Vec<String> {
        let mut values: Vec<&str> = vec!["NULL"];
        match self.base.as_str() {
            "int2" => values.extend(["'-32768'", "-1", "0", "32767"]),
            "int4" => values.extend(["'-2147483648'", "-1", "0", "2147483647"]),
            "int8" => values.extend([
                "'-9223372036854775808'",
                "-1",
                "0",
                "4294967296",
                "9223372036854775807",
            ]),
            "oid" | "regclass" | "regtype" | "regproc" | "regrole" => {
                values.extend(["0", "1", "'4294967295'"]);
            }
            "xid" | "cid" => values.extend(["'0'", "'4294967295'"]),
            "float8" | "numeric" => {
                values.extend(["'NaN'", "'Infinity'", "'-Infinity'", "-1", "0", "1e308"]);
            }
            "bool" => values.extend(["'t'", "'f'"]),
            "text" | "varchar" | "bpchar" | "name" | "json" => {
                values.extend([
                    "''",
                    "' '",
                    r"E'\x01\t\r\n'",
                    r"E'\\'",
                    "''''",
                    "'%s %n {{ a }} {% for'",
                    "'{}'",
                    "'@'",
                    "'1'",
                    r"U&'u\0308\202E\+01F600\FFFF@\212A.example'",
                    "repeat('(', 100000)",
                    "repeat('{{', 100000)",
                    "repeat('a,', 100000)",
                    "repeat(U&'\\+01F600', 100000)",
                ]);
                if octets == Octets::Any {
                    values.extend(NO_TEXT);
                }
            }
            "bytea" => values.extend([
                "''",
                r"'\x00'",
                r"decode(repeat('00', 31), 'hex')",
                r"decode(repeat('ff', 32), 'hex')",
                r"decode(repeat('ff', 100000), 'hex')",
            ]),
            "jsonb" => {
                values.extend([
                    "'null'",
                    "'[]'",
                    "'{}'",
                    "'\"\"'",
                    "'-1e1000'",
                    "'[null, {}, [], 1, \"\", true]'",
                    "'[{\"recipients\": null}]'",
                    "'[{\"recipients\": [1, [], {}]}, {\"recipient\": {}}]'",
                    "'{\"\": \"\", \"a\": {\"a\": [[[]]]}, \"token\": 1, \"code\": [], \"link\": {}}'",
                    "(repeat('[', 5000) || repeat(']', 5000))",
                    "jsonb_agg(i) FROM generate_series(1, 10000) i",
                ]);
                if octets == Octets::Any {
                    values.extend([
                        r"to_jsonb(E'\xff'::text)",
                        r"jsonb_build_object(E'\xc0\x80', E'\xed\xa0\x80')",
                    ]);
                }
            }
            "timestamptz" => values.extend([
                "'infinity'",
                "'-infinity'",
                "'4714-11-24 00:00:00+00 BC'",
                "'294276-12-31 23:59:59.999999+00'",
                "'epoch'",
            ]),
            "interval" => values.extend([
                "'0'",
                "'-1 microsecond'",
                "'178000000 years'",
                "'-178000000 years'",
                "'2147483647 months 2147483647 days'",
            ]),
            "uuid" => values.extend(["'00000000-0000-0000-0000-000000000000'"]),
            "tid" => values.extend(["'(0,0)'", "'(4294967295,65535)'", "'(0,1)'"]),
            array if array.starts_with('_') => {
                values.extend([
                    "'{}'",
                    "'{NULL}'",
                    "'{NULL,NULL,NULL}'",
                    "'{{1,2},{3,4}}'",
                    "'[5:6]={1,2}'",
                    "'[-2147483648:-2147483647]={1,1}'",
                    "'{1,0,-1,1}'",
                    "'{\"\",\" \"}'",
                    "array_agg(i) FROM generate_series(1, 10000) i",
                ]);
                if octets == Octets::Any && array == "_text" {
                    values.extend([r"ARRAY[E'\xff', E'a\xc3@example.com']"]);
                }
            }
            _ => {}
        }
        let mut all: Vec<String> = values
            .into_iter()
            .map(|value| match value.split_once(" FROM ") {
                Some((aggregate, from)) => {
                    format!("(SELECT {aggregate} FROM {from})::{}", self.r#type)
                }
                None => self.cast(value),
            })
            .collect();
        all.extend(self.labels.iter().map(|label| self.cast(label)));
        all
    }

    /// 100 MB of it, where that can be.
    fn enormous(&self) -> Option<String> {
        const MANY: &str = "repeat(repeat('x', 1024), 102400)";
        let value = match self.base.as_str() {
            "text" | "varchar" => MANY.to_owned(),
            "bytea" => format!("convert_to({MANY}, 'SQL_ASCII')"),
            "jsonb" => format!("jsonb_build_object('a', {MANY})"),
            "json" => format!("json_build_object('a', {MANY})"),
            "_text" | "_varchar" => format!("ARRAY[{MANY}]"),
            _ => return None,
        };
        Some(self.cast(&value))
    }
}

impl Function {
    fn call(&self, arguments: &[String]) -> String {
        format!("SELECT * FROM {}({})", self.name, arguments.join(", "))
    }

    /// Calls with one odd value among plain ones, and with nothing but odd ones.
    fn odd_calls(&self, octets: Octets) -> Vec<String> {
        let plain: Vec<String> = self.arguments.iter().map(Argument::plain).collect();
        let odd: Vec<Vec<String>> = self
            .arguments
            .iter()
            .map(|argument| argument.odd(octets))
            .collect();
        let mut calls = vec![self.call(&plain)];
        for (place, values) in odd.iter().enumerate() {
            for value in values {
                let mut arguments = plain.clone();
                arguments[place].clone_from(value);
                calls.push(self.call(&arguments));
            }
        }
        let most = odd.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..most {
            let arguments: Vec<String> = odd
                .iter()
                .map(|values| values[round % values.len()].clone())
                .collect();
            calls.push(self.call(&arguments));
        }
        calls
    }

    /// Calls with one argument of 100 MB.
    fn enormous_calls(&self) -> Vec<String> {
        let plain: Vec<String> = self.arguments.iter().map(Argument::plain).collect();
        self.arguments
            .iter()
            .enumerate()
            .filter_map(|(place, argument)| {
                let mut arguments = plain.clone();
                arguments[place] = argument.enormous()?;
                Some(self.call(&arguments))
            })
            .collect()
    }
}

/// Makes one call and takes it back; tells how it ended: `row`, or the error's code.
const TRY: &str = "CREATE FUNCTION public.try(call text) RETURNS text LANGUAGE plpgsql AS $$ \
     BEGIN \
         EXECUTE call; \
         RAISE SQLSTATE 'TRY00'; \
     EXCEPTION \
         WHEN SQLSTATE 'TRY00' THEN RETURN 'row'; \
         WHEN OTHERS THEN RETURN SQLSTATE || ' ' || SQLERRM; \
     END $$";

/// A database of this encoding with a row of each kind in it.
fn prepare(cluster: &Cluster, name: &str, encoding: &str) -> Client {
    cluster
        .connect("postgres")
        .batch_execute(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .unwrap();
    let mut client = cluster.connect(name);
    client
        .batch_execute(&format!(
            "SET client_min_messages = error; CREATE EXTENSION mailroom; SELECT mailroom_pause(); \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'), ('b@example.com', 'b', 'provisioned'); \
             INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE login = 'a'; \
             SELECT mailroom_send('a@example.com', 'Subject', 'Text', item_key => 'a@example.com', group_key => 'a@example.com'); \
             SELECT FROM mailroom_claim(1, '1 h', 'a@example.com'); \
             SELECT mailroom_send('a@example.com', 'Subject', 'Text'); \
             SET statement_timeout = '{}s'; SET extra_float_digits = 0; {TRY}",
            PATIENCE.as_secs()
        ))
        .unwrap();
    client
}

/// Makes all these calls in one session, which must outlive them.
fn make(client: &mut Client, calls: &[String]) {
    let session = number(client, "SELECT pg_backend_pid()::bigint");
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for call in calls {
        let shown: String = call.chars().take(400).collect();
        let outcome: String = client
            .query_one(
                "SELECT left(encode(convert_to(try($1), 'SQL_ASCII'), 'escape'), 300)",
                &[call],
            )
            .unwrap_or_else(|error| panic!("{shown}\n{error:?}"))
            .get(0);
        let code = outcome.split(' ').next().unwrap();
        // An internal error is one that nobody thought of. Those that no role may call may refuse NULL that way.
        if code.starts_with("XX") && call.contains(".mailroom_") {
            wrong.push(format!("{shown}\n  {outcome}"));
        }
        *outcomes.entry(code.to_owned()).or_default() += 1;
    }
    assert_eq!(
        number(client, "SELECT pg_backend_pid()::bigint"),
        session,
        "the session was lost"
    );
    assert!(
        wrong.is_empty(),
        "{} of {} calls:\n{}",
        wrong.len(),
        calls.len(),
        wrong.join("\n")
    );
    // They do reach the functions: some of these values are good, and some are refused by name.
    for expected in ["row", "22023"] {
        assert!(outcomes.contains_key(expected), "{outcomes:?}");
    }
}

/// The server before the calls.
struct Before {
    started: String,
    /// How much it had logged.
    log: usize,
}

impl Before {
    fn of(cluster: &Cluster, client: &mut Client) -> Self {
        Self {
            started: start_time(client),
            log: cluster.log().len(),
        }
    }
}

/// Nothing of the server ended.
fn audit(cluster: &Cluster, before: &Before) {
    let mut client = cluster.connect("postgres");
    assert_eq!(
        start_time(&mut client),
        before.started,
        "the server went down"
    );
    let log = cluster.log();
    let told: Vec<&str> = log[before.log..]
        .lines()
        .filter(|line| {
            ["terminated by signal", "PANIC", "exited with exit code"]
                .iter()
                .any(|sign| line.contains(sign))
        })
        .collect();
    assert!(told.is_empty(), "{told:?}");
}

fn start_time(client: &mut Client) -> String {
    client
        .query_one("SELECT pg_postmaster_start_time()::text", &[])
        .unwrap()
        .get(0)
}

/// All calls of one kind to all functions.
fn calls(client: &mut Client, of: impl Fn(&Function) -> Vec<String>) -> Vec<String> {
    let functions = functions(client);
    assert!(functions.len() > 100, "{} functions", functions.len());
    functions.iter().flat_map(of).collect()
}

#[test]
fn odd_values_end_in_an_error_or_a_row() {
    let cluster = Cluster::start(&[]);
    let mut client = prepare(&cluster, "app", "UTF8");
    let before = Before::of(&cluster, &mut client);
    let calls = calls(&mut client, |function| function.odd_calls(Octets::Utf8));
    assert!(calls.len() > 2_000, "{} calls", calls.len());
    make(&mut client, &calls);
    audit(&cluster, &before);
}

#[test]
fn octets_that_are_no_text_end_in_an_error_or_a_row() {
    let cluster = Cluster::start(&[]);
    let mut client = prepare(&cluster, "app", "SQL_ASCII");
    let before = Before::of(&cluster, &mut client);
    let calls = calls(&mut client, |function| function.odd_calls(Octets::Any));
    let strange: Vec<String> = calls
        .into_iter()
        .filter(|call| call.contains(r"\x"))
        .collect();
    assert!(strange.len() > 500, "{} calls", strange.len());
    make(&mut client, &strange);
    // The same, with their errors and rows on their way to a client that takes octets for what they are.
    let script = cluster.scratch().join("calls.sql");
    let statements: String = strange
        .iter()
        .map(|call| format!("BEGIN; {call};\nROLLBACK;\n"))
        .collect();
    std::fs::write(
        &script,
        format!("SET client_min_messages = error;\n{statements}\\echo all were made\n"),
    )
    .unwrap();
    let output = cluster
        .program("psql")
        .args(["-X", "-q", "-d", "app", "-f"])
        .arg(&script)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("lost"), "{errors}");
    assert!(output.status.success(), "{errors}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.ends_with("all were made\n"));
    audit(&cluster, &before);
}

#[test]
fn a_hundred_megabytes_end_in_an_error_or_a_row() {
    let cluster = Cluster::start(&[]);
    // So much memory goes to and fro that the kernel would take most of the time, were it given back each time.
    cluster.stop_server(Stop::Fast);
    cluster.start_server_under(
        "",
        &[
            ("MALLOC_MMAP_MAX_", "0"),
            ("MALLOC_TRIM_THRESHOLD_", "4000000000"),
        ],
    );
    let mut client = prepare(&cluster, "app", "UTF8");
    let before = Before::of(&cluster, &mut client);
    let calls = calls(&mut client, Function::enormous_calls);
    assert!(calls.len() > 100, "{} calls", calls.len());
    make(&mut client, &calls);
    audit(&cluster, &before);
}
