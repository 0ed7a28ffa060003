//! Every function of the extension, public or internal, called with unusual values: NULL, extremes, infinity, empty and
//! very large values, and bytes that are no text. Each call ends with an error or with rows, and the session and the
//! server survive all of them.
//!
//! The functions and the types of their arguments are read from the catalog, so a new function is tested without being
//! listed here. The calls are the same in each run.

mod arguments;

use std::collections::BTreeMap;

use self::arguments::{Argument, Octets};
use crate::cluster::{Cluster, PATIENCE, Stop, number};
use postgres::Client;

/// A function: its qualified name and its arguments.
struct Function {
    name: String,
    arguments: Vec<Argument>,
}

/// The functions of the extension, including trigger functions.
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

impl Function {
    fn call(&self, arguments: &[String]) -> String {
        format!("SELECT * FROM {}({})", self.name, arguments.join(", "))
    }

    /// Calls with one odd value among plain ones, and calls with odd ones only.
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

    /// Calls with one argument of 20 MB.
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

/// Makes one call and rolls it back; returns `row`, or the error's SQLSTATE and message.
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

/// Makes all these calls in one session, which must survive them.
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
        // Internal errors are unexpected, except in functions that no role may call: these may refuse NULL by one.
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
    // The calls reach the functions: some of the values are accepted, and some are refused by a check.
    for expected in ["row", "22023"] {
        assert!(outcomes.contains_key(expected), "{outcomes:?}");
    }
}

/// The state of the server before the calls.
struct Before {
    started: String,
    /// Length of its log in bytes.
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

/// Fails if the server restarted, or if one of its processes ended abnormally.
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
    // The same calls, with their errors and rows sent to a client that accepts any bytes.
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
fn twenty_megabytes_end_in_an_error_or_a_row() {
    let cluster = Cluster::start(&[]);
    // The calls allocate so much memory that the kernel would take most of the time if it were returned each time.
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

/// I8: rows that were written by hand.
#[test]
fn infinite_times_and_a_long_provider_id_stop_nothing() {
    let (_cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, created_at, send_at, expires_at) VALUES \
             ('own', '{a@example.com}', 'S', 'T', '-infinity', '-infinity', 'infinity'), \
             ('own', '{a@example.com}', 'S', 'T', now(), now(), NULL), \
             ('own', '{a@example.com}', 'S', 'T', 'infinity', 'infinity', NULL); \
             SET search_path = pg_catalog, public, pg_temp",
        )
        .unwrap();
    // The statement by which deliverers claim.
    let none: Option<&[&str]> = None;
    let claimed = client
        .query(
            include_str!("../../sql/queries/claim_mail.sql"),
            &[&10_i32, &"me", &none, &60_f64],
        )
        .unwrap();
    assert_eq!(claimed.len(), 2);
    assert!(
        claimed
            .iter()
            .all(|row| row.get::<_, Option<f64>>("expires_in").is_none()
                && row.get::<_, Option<f64>>("age").is_none())
    );
    let ids: Vec<i64> = claimed.iter().map(|row| row.get("id")).collect();
    // A lease expires and an attempt fails while `expires_at` is infinitely far away.
    client
        .batch_execute(
            "UPDATE outbox SET claimed_until = now() WHERE state = 'claimed'; SELECT _expire_leases(clock_timestamp(), 10); \
             UPDATE outbox SET send_at = '-infinity' WHERE state = 'scheduled' AND isfinite(created_at) OR expires_at = 'infinity'; \
             SELECT * FROM mailroom_status(); \
             SELECT mailroom_claim(10, '1 h', 'me'); \
             SELECT mailroom_mark_error_many(array_agg(id), array_agg('no'::text), claimant => 'me') FROM outbox WHERE state = 'claimed'; \
             UPDATE outbox SET send_at = now() WHERE state = 'scheduled' AND isfinite(send_at); \
             SELECT mailroom_claim(10, '1 h', 'me')",
        )
        .unwrap();
    let settled: Vec<i64> = client
        .query_one(
            "SELECT mailroom_mark_sent_many($1, ARRAY['fine', repeat('x', 100000)], 'me')",
            &[&ids],
        )
        .unwrap()
        .get(0);
    assert_eq!(settled, ids);
    let named = "SELECT count(*) FROM outbox WHERE state = 'sent' AND coalesce(provider_id, 'none') IN ('fine', 'none')";
    assert_eq!(number(&mut client, named), 2);
    // A purge deletes a row that ended at -infinity.
    client
        .batch_execute("UPDATE outbox SET ended_at = '-infinity' WHERE state = 'sent'")
        .unwrap();
    assert_eq!(
        number(&mut client, "SELECT purged::bigint FROM mailroom_purge(1)"),
        1
    );
}
