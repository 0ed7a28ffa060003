//! Hostile neighbours: objects of our names, functions that would be called instead of ours, roles that are not
//! what they seem, schemas that hardly anybody thinks of, and rights that must not grow.

use std::sync::Barrier;

use crate::cluster::{Cluster, eventually, number};
use postgres::Client;
use postgres::error::SqlState;

/// Everything that can be called, with exact types.
const TRAFFIC: &str = include_str!("../hostile/traffic.sql");
/// Functions in SQL disappear in the statement that calls them, and those in C are not counted either: for these see
/// [`the_traffic_calls_every_public_function`].
const COUNTED: &str = "SELECT p.oid::regprocedure::text \
     FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_language l ON l.oid = p.prolang \
     WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
     AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') AND l.lanname = 'plpgsql'";

/// Runs the traffic against the extension in this schema, given as SQL writes it.
fn traffic(client: &mut Client, schema: &str) {
    for statement in TRAFFIC.split("\n\n") {
        let statement = statement.replace("@s@", schema);
        if let Err(error) = client.batch_execute(&statement) {
            panic!("{statement}\n{error:?}");
        }
    }
}

/// Fails unless the traffic has called every function that is counted.
fn assert_everything_was_called(cluster: &Cluster, database: &str) {
    let mut client = cluster.connect(database);
    eventually("the counts of all functions", || {
        let missing: Vec<String> = client
            .query(
                &format!(
                    "{COUNTED} EXCEPT SELECT funcid::regprocedure::text FROM pg_stat_user_functions ORDER BY 1"
                ),
                &[],
            )
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        if !missing.is_empty() {
            eprintln!("not called yet: {missing:?}");
        }
        missing.is_empty().then_some(())
    });
}

/// Functions that are not counted can only be looked for in the traffic: those that roles call are all there.
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

fn code(error: &postgres::Error) -> &SqlState {
    error
        .code()
        .unwrap_or_else(|| panic!("not the server's error: {error}"))
}

/// How many objects the extension has.
fn members(client: &mut Client) -> i64 {
    number(
        client,
        "SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' \
         AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')",
    )
}

/// Plants, for each function of ours, functions of its name: with another type in each place, with fewer arguments
/// and with more, and variadic. A call that does not fit ours exactly fits one of these better.
const PLANT: &str = r#"
DO $$
DECLARE
    ours record;
    variants text[];
    variant text;
    types text[];
    alternative text;
    planted integer := 0;
BEGIN
    FOR ours IN
        SELECT p.proname, n.nspname, p.prokind,
            ARRAY(
                SELECT format_type(u.type, NULL)
                FROM unnest(p.proargtypes) WITH ORDINALITY u (type, place)
                ORDER BY u.place
            ) AS types
        FROM pg_depend d
        JOIN pg_proc p ON p.oid = d.objid
        JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE d.classid = 'pg_proc'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')
          AND p.prorettype <> 'trigger'::regtype
    LOOP
        variants := '{}';
        FOR place IN 1 .. cardinality(ours.types) LOOP
            FOREACH alternative IN ARRAY ARRAY[
                'smallint', 'integer', 'bigint', 'numeric', 'double precision', 'text', 'varchar', 'bpchar', 'name',
                'boolean', 'json', 'jsonb', 'timestamptz', 'timestamp', 'date', 'interval', 'oid', 'regclass', 'bytea',
                'uuid', 'tid', 'record', 'anyelement', 'anyarray', 'anynonarray', 'text[]', 'varchar[]', 'name[]', 'integer[]',
                'smallint[]', 'bigint[]', 'boolean[]', 'interval[]', 'tid[]', 'token_action', 'token_action[]',
                'account_status', 'outbox_state', '_kind', '_addresses', '_recipients', '_variables', '_one_line',
                '_message', 'outbox', 'tokens', 'accounts'
            ] LOOP
                types := ours.types;
                types[place] := alternative;
                variants := variants || array_to_string(types, ', ');
            END LOOP;
            variants := variants || array_to_string(ours.types[: place - 1], ', ');
        END LOOP;
        -- The same number of arguments without VARIADIC, and one more.
        FOR more IN 1 .. 6 LOOP
            variants := variants || concat_ws(', ', VARIADIC ours.types || array_fill('integer'::text, ARRAY[more]));
        END LOOP;
        IF ours.types[cardinality(ours.types)] LIKE '%[]' THEN
            FOR more IN 1 .. 6 LOOP
                variants := variants || concat_ws(
                    ', ', VARIADIC ours.types[: cardinality(ours.types) - 1]
                        || array_fill(rtrim(ours.types[cardinality(ours.types)], '[]'), ARRAY[more])
                );
            END LOOP;
        END IF;
        variants := variants || concat_ws(', ', VARIADIC ours.types || 'VARIADIC integer[]'::text);
        FOREACH variant IN ARRAY variants LOOP
            BEGIN
                EXECUTE format(
                    'CREATE FUNCTION %I.%I(%s) RETURNS integer LANGUAGE plpgsql AS %L',
                    ours.nspname, ours.proname, variant,
                    format('BEGIN RAISE EXCEPTION ''a planted %s(%s) was called''; END', ours.proname, variant)
                );
                planted := planted + 1;
            EXCEPTION
                WHEN duplicate_function OR invalid_function_definition OR undefined_object THEN NULL;
            END;
        END LOOP;
    END LOOP;
    IF planted < 5000 THEN
        RAISE 'only % functions were planted', planted;
    END IF;
END;
$$;
-- Operators and casts, which any role can make for types of its own and some of PostgreSQL's.
CREATE FUNCTION public.trap(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted operator was called'; END $$;
CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.trap);
CREATE FUNCTION public.trap(bigint, integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted operator was called'; END $$;
CREATE OPERATOR public.> (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = public.trap);
CREATE OPERATOR public.>= (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = public.trap);
CREATE FUNCTION public.trap(token_action, token_action) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted operator was called'; END $$;
CREATE OPERATOR public.= (LEFTARG = token_action, RIGHTARG = token_action, FUNCTION = public.trap);
CREATE FUNCTION public.trap(outbox_state, outbox_state) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted operator was called'; END $$;
CREATE OPERATOR public.= (LEFTARG = outbox_state, RIGHTARG = outbox_state, FUNCTION = public.trap);
CREATE FUNCTION public.trap(timestamptz, timestamptz) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted operator was called'; END $$;
CREATE OPERATOR public.- (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = public.trap);
CREATE FUNCTION public.trap(text, text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted operator was called'; END $$;
CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = text[], FUNCTION = public.trap);
CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted now() was called'; END $$;
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted clock_timestamp() was called'; END $$;
CREATE FUNCTION public.lower(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted lower() was called'; END $$;
"#;

/// A database in which an ordinary role has planted all this into the extension's schema.
fn planted(cluster: &Cluster) -> Client {
    let mut client = cluster.create_database("app");
    client
        .batch_execute("CREATE ROLE planter LOGIN; GRANT CREATE ON SCHEMA public TO planter")
        .unwrap();
    cluster
        .connect_as("app", "planter")
        .batch_execute(PLANT)
        .unwrap();
    client
}

#[test]
fn no_planted_overload_is_called() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "track_functions = all"]);
    let mut client = planted(&cluster);
    // They are in the way of whoever calls with other types or fewer arguments, which shows that they work.
    let error = client
        .batch_execute("SELECT public._announce(1)")
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
    // A new worker, which has planned nothing before.
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
    // A batch that fails is recorded by a statement of the worker's own.
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
            // Those of triggers are run by the traffic.
            "issue_all.sql" | "enqueue_all.sql" => continue,
            "answer_requests.sql"
            | "attach.sql"
            | "budget.sql"
            | "database_settings.sql"
            | "purge.sql"
            | "tell_due.sql" => ("", ""),
            "move_in.sql" => ("(oid, text)", "(1, '3')"),
            "claim_mail.sql" => ("(integer, text, text[])", "(10, 'me', '{one}')"),
            "fall_back.sql" => (
                "(text, text[], double precision[], integer)",
                "('two', '{one}', '{3600}', 1)",
            ),
            "publish_transports.sql" => ("(text, text, text)", "('me', '[]', NULL)"),
            "extend_claims.sql" => ("(bigint[], text)", "('{1}', 'me')"),
            "take_over.sql" => ("(text)", "('1')"),
            "settle_sent.sql" => (
                "(bigint[], text[], text, integer[], text[])",
                "('{1}', '{p}', 'me', '{0}', '{[]}')",
            ),
            "settle_failed.sql" => (
                "(bigint[], text[], double precision[], boolean[], integer[], text, integer[], boolean[], boolean[], text[])",
                "('{1}', '{no}', '{1}', '{f}', '{500}', 'me', '{0}', '{t}', '{f}', '{00000000-0000-8000-8000-000000000000}')",
            ),
            "settle_released.sql" => ("(bigint[], text, integer[])", "('{1}', 'me', '{0}')"),
            "poll.sql" => ("(integer, boolean)", "(10, true)"),
            "record_failure.sql" => ("(timestamptz, text, text)", "(NULL, 'poll', 'x')"),
            "run_batch.sql" => ("(integer, text)", "(10, 'poll')"),
            "tend.sql" => ("(boolean)", "(true)"),
            "waiting.sql" => ("(integer)", "(10)"),
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
fn a_hostile_search_path_changes_nothing() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "track_functions = all"]);
    let mut client = cluster.connect("postgres");
    // Tables, types, functions and operators of PostgreSQL's and of our names, in front of all others.
    let evil = |client: &mut Client| {
        client
            .batch_execute(
                "CREATE SCHEMA evil; \
                 CREATE FUNCTION evil.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil was called'; END $$; \
                 CREATE TABLE evil.accounts (LIKE pg_class); CREATE TABLE evil.tokens (LIKE pg_class); \
                 CREATE TABLE evil.outbox (LIKE pg_class); CREATE TABLE evil.pending (LIKE pg_class); \
                 CREATE TABLE evil.jobs (LIKE pg_class); CREATE TABLE evil.link_requests (LIKE pg_class); \
                 CREATE TABLE evil.pg_class (x integer); CREATE TABLE evil.pg_roles (x integer); \
                 CREATE TABLE evil.pg_depend (x integer); CREATE TABLE evil.pg_extension (x integer); \
                 CREATE TYPE evil.text AS ENUM ('evil'); CREATE TYPE evil.token_action AS ENUM ('evil'); \
                 CREATE DOMAIN evil.bigint AS integer CHECK (false);",
            )
            .unwrap();
        for signature in [
            "now()",
            "clock_timestamp()",
            "lower(pg_catalog.text)",
            "floor(pg_catalog.float8)",
            "floor(pg_catalog.numeric)",
            "gen_random_uuid()",
            "to_regrole(pg_catalog.text)",
            "pg_has_role(pg_catalog.name, pg_catalog.text)",
            "cardinality(anyarray)",
            "format(pg_catalog.text, VARIADIC \"any\")",
            "pg_notify(pg_catalog.text, pg_catalog.text)",
            "current_setting(pg_catalog.text)",
            "char_length(pg_catalog.text)",
            "octet_length(pg_catalog.bytea)",
        ] {
            // PL/pgSQL takes no "any"; what it cannot have is left out of the trap.
            let _ = client.batch_execute(&format!(
                "CREATE FUNCTION evil.{signature} RETURNS pg_catalog.int4 LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'evil was called'; END $$"
            ));
        }
        for (name, left, right) in [
            ("=", "pg_catalog.text", "pg_catalog.text"),
            ("<>", "pg_catalog.text", "pg_catalog.text"),
            ("=", "pg_catalog.int8", "pg_catalog.int8"),
            (">", "pg_catalog.int8", "pg_catalog.int8"),
            ("=", "pg_catalog.name", "pg_catalog.text"),
            ("=", "anyenum", "anyenum"),
            ("=", "pg_catalog.oid", "pg_catalog.oid"),
            ("-", "pg_catalog.jsonb", "pg_catalog._text"),
            ("||", "pg_catalog.jsonb", "pg_catalog.jsonb"),
            ("+", "pg_catalog.timestamptz", "pg_catalog.interval"),
            ("<=", "pg_catalog.timestamptz", "pg_catalog.timestamptz"),
            ("~", "pg_catalog.text", "pg_catalog.text"),
        ] {
            client
                .batch_execute(&format!(
                    "CREATE FUNCTION evil.op({left}, {right}) RETURNS pg_catalog.bool LANGUAGE plpgsql AS \
                     $$ BEGIN RAISE EXCEPTION 'evil was called'; END $$; \
                     CREATE OPERATOR evil.{name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = evil.op)"
                ))
                .or_else(|_| {
                    client.batch_execute(&format!(
                        "CREATE OPERATOR evil.{name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = evil.op)"
                    ))
                })
                .unwrap();
        }
    };
    client.batch_execute("CREATE DATABASE app").unwrap();
    let mut client = cluster.connect("app");
    evil(&mut client);
    client
        .batch_execute("SET search_path = evil, pg_catalog")
        .unwrap();
    let error = client.batch_execute("SELECT now()").unwrap_err();
    assert!(format!("{error:?}").contains("evil was called"));
    // Installed under it, used under it, and dropped under it.
    client
        .batch_execute("CREATE EXTENSION mailroom SCHEMA public")
        .unwrap();
    traffic(&mut client, "public");
    client
        .batch_execute(
            "CREATE TEMPORARY TABLE tokens (x pg_catalog.int4); CREATE TEMPORARY TABLE new_rows (x pg_catalog.int4); \
             CREATE TEMPORARY VIEW pg_trigger AS SELECT 1 AS oid; \
             SET search_path = evil, pg_temp, pg_catalog",
        )
        .unwrap();
    traffic(&mut client, "public");
    for table in [
        "accounts",
        "tokens",
        "outbox",
        "pending",
        "jobs",
        "link_requests",
    ] {
        let rows: i64 = client
            .query_one(
                &format!("SELECT pg_catalog.count(*) FROM evil.{table}"),
                &[],
            )
            .unwrap()
            .get(0);
        assert_eq!(rows, 0, "{table}");
    }
    // The session tells what it has called.
    client
        .batch_execute("SELECT pg_catalog.pg_stat_force_next_flush() FROM public.jobs")
        .unwrap();
    assert_everything_was_called(&cluster, "app");
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
}

/// What any role may set for itself decides how PostgreSQL reads a function's body: backslashes, nulls, formats.
#[test]
fn no_setting_of_a_session_changes_what_a_body_means() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE DATABASE app").unwrap();
    client
        .batch_execute(
            "ALTER DATABASE app SET standard_conforming_strings = off; ALTER DATABASE app SET quote_all_identifiers = on; \
             ALTER DATABASE app SET transform_null_equals = on; ALTER DATABASE app SET array_nulls = off; \
             ALTER DATABASE app SET bytea_output = 'escape'; ALTER DATABASE app SET extra_float_digits = -15; \
             ALTER DATABASE app SET datestyle = 'German, DMY'; ALTER DATABASE app SET intervalstyle = 'sql_standard'",
        )
        .unwrap();
    let mut client = cluster.connect("app");
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    traffic(&mut client, "public");
    let error = client
        .batch_execute("SELECT mailroom_send('no address', 'S', 'T')")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::INVALID_PARAMETER_VALUE);
    let hint = error.as_db_error().unwrap().hint();
    assert!(
        hint.is_some_and(|hint| hint.starts_with("An address")),
        "{hint:?}"
    );
    let error = client
        .batch_execute("SELECT mailroom_send('a@example.com', E'S\\nS', 'T')")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::INVALID_PARAMETER_VALUE);
    // A sender that says too late what went wrong, and quotes the code.
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('late@example.com', 'late'); SELECT mailroom_collect(); \
             SELECT mailroom_mark_sent(c.id, NULL, 'me') FROM mailroom_claim(100, '1 min', 'me') c; \
             SELECT mailroom_mark_error(id, 'refused: 12345', claimant => 'you') FROM outbox \
             WHERE recipients = '{late@example.com}'",
        )
        .unwrap();
    let told: Vec<String> = client
        .query(
            "SELECT error FROM outbox_attempts WHERE outcome = 'late' AND claimant = 'you'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(told, ["refused: [code]"]);
}

#[test]
fn objects_of_the_same_names_fail_the_installation_and_nothing_else() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute("CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO other")
        .unwrap();
    let mut other = cluster.connect_as("postgres", "other");
    let objects = [
        ("TABLE accounts (id bigint)", "TABLE accounts"),
        ("TABLE tokens (id bigint)", "TABLE tokens"),
        ("VIEW outbox AS SELECT 1 AS id", "VIEW outbox"),
        ("SEQUENCE accounts_id_seq", "SEQUENCE accounts_id_seq"),
        (
            "MATERIALIZED VIEW _token_verdicts AS SELECT 1 AS id",
            "MATERIALIZED VIEW _token_verdicts",
        ),
        ("TABLE outbox_due (id bigint)", "TABLE outbox_due"),
        ("TYPE token_action AS ENUM ('x')", "TYPE token_action"),
        ("DOMAIN _kind AS text", "DOMAIN _kind"),
        (
            "FUNCTION _sign(action text, secret bytea, code text) RETURNS text LANGUAGE sql AS $$ SELECT code $$",
            "FUNCTION _sign(text, bytea, text)",
        ),
        (
            "FUNCTION _tokens_enqueue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            "FUNCTION _tokens_enqueue()",
        ),
        (
            "FUNCTION mailroom_redeem(text, text) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$",
            "FUNCTION mailroom_redeem(text, text)",
        ),
        ("TABLE attached (id bigint)", "TABLE attached"),
    ];
    let everything = "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_proc) \
         + (SELECT count(*) FROM pg_type) + (SELECT count(*) FROM pg_roles) + (SELECT count(*) FROM pg_extension)";
    for (definition, name) in objects {
        other
            .batch_execute(&format!("CREATE {definition}"))
            .unwrap();
        let before = number(&mut client, everything);
        let error = client
            .batch_execute("CREATE EXTENSION mailroom")
            .expect_err(name);
        assert!(
            [
                &SqlState::DUPLICATE_TABLE,
                // The column took another name for its sequence, and then the sequence is not ours to dump.
                &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                &SqlState::DUPLICATE_OBJECT,
                &SqlState::DUPLICATE_FUNCTION
            ]
            .contains(&code(&error)),
            "{name}: {error:?}"
        );
        assert_eq!(number(&mut client, everything), before, "{name}");
        other.batch_execute(&format!("DROP {name}")).unwrap();
    }
    // Functions that might be called while it is installed.
    client
        .batch_execute("CREATE EXTENSION mailroom; DROP EXTENSION mailroom")
        .unwrap();
    other
        .batch_execute(
            "CREATE FUNCTION _create_key_file(VARIADIC integer[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _request_worker(VARIADIC integer[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _random_code(VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _addresses_problem(anyarray) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _is_callers_role(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$",
        )
        .unwrap();
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    traffic(&mut client, "public");
    // With a default for what ours does not have, PostgreSQL cannot tell which is meant, and calls neither.
    other
        .batch_execute(
            "CREATE FUNCTION _random_secret(integer DEFAULT 1) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$",
        )
        .unwrap();
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    let before = number(&mut client, everything);
    let error = client
        .batch_execute("CREATE EXTENSION mailroom")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::AMBIGUOUS_FUNCTION, "{error:?}");
    assert_eq!(number(&mut client, everything), before);
}

#[test]
fn any_schema_that_postgresql_takes_will_do() {
    let cluster = Cluster::start(&["mailroom.batch_timeout = 0"]);
    let long = "x".repeat(63);
    let names = [
        "Mail Room",
        "sélect ünïcode",
        "select",
        "a.b",
        "100%s",
        "%1$I",
        "a;b",
        "a,b",
        "{x}",
        "- -",
        "pg temp",
        "7",
        "a\tb",
        "*",
        long.as_str(),
    ];
    for (index, name) in names.iter().enumerate() {
        let database = format!("app{index}");
        cluster
            .connect("postgres")
            .batch_execute(&format!("CREATE DATABASE {database}"))
            .unwrap();
        let mut client = cluster.connect(&database);
        let schema = format!("\"{name}\"");
        // The server has no such characters in a schema that a script puts into its statements.
        if name.contains('$') {
            let error = client
                .batch_execute(&format!(
                    "CREATE SCHEMA {schema}; CREATE EXTENSION mailroom SCHEMA {schema}"
                ))
                .expect_err(name);
            assert!(
                format!("{error:?}").contains("invalid character in extension"),
                "{error:?}"
            );
            continue;
        }
        client
            .batch_execute(&format!(
                "CREATE SCHEMA {schema}; CREATE EXTENSION mailroom SCHEMA {schema}; \
                 INSERT INTO {schema}.accounts (email, login) VALUES ('first@example.com', 'first')"
            ))
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        eventually("the worker's mail", || {
            (number(
                &mut client,
                &format!("SELECT count(*) FROM {schema}.outbox"),
            ) == 1)
                .then_some(())
        });
        client
            .batch_execute(&format!(
                "SELECT {schema}.mailroom_pause(); TRUNCATE {schema}.accounts, {schema}.tokens, {schema}.outbox"
            ))
            .unwrap();
        traffic(&mut client, &schema);
        client.batch_execute("DROP EXTENSION mailroom").unwrap();
    }
}

#[test]
fn a_renamed_schema_fails_until_it_is_renamed_back() {
    for new_worker in [false, true] {
        rename_and_back(new_worker);
    }
}

fn rename_and_back(new_worker: bool) {
    let cluster = Cluster::start(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '1s'",
    ]);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE DATABASE app").unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute(
            "CREATE SCHEMA mail; CREATE EXTENSION mailroom SCHEMA mail; \
             SELECT mail.mailroom_pause(); \
             INSERT INTO mail.accounts (email, login) VALUES ('a@example.com', 'a'); \
             ALTER SCHEMA mail RENAME TO post",
        )
        .unwrap();
    // One worker that came under the old name, or one under the new: both get over it.
    if new_worker {
        let worker = eventually("a worker", || crate::cluster::find_worker(&mut client));
        crate::cluster::signal("TERM", worker);
        crate::cluster::another_worker(&mut client, worker);
        eventually("its failure under the new name", || {
            cluster
                .log()
                .contains("cannot start its work: relation")
                .then_some(())
        });
    }
    // What is written in SQL goes by the old name.
    let consume = "UPDATE post.tokens SET consumed_at = 1";
    let insert = "INSERT INTO post.accounts (email, login) VALUES ('b@example.com', 'b')";
    for statement in [consume, insert] {
        let error = client.batch_execute(statement).unwrap_err();
        assert!(
            [&SqlState::UNDEFINED_TABLE, &SqlState::INVALID_SCHEMA_NAME].contains(&code(&error)),
            "{error:?}"
        );
        assert!(format!("{error:?}").contains("mail"), "{error:?}");
    }
    // Another schema in the old one's place does not become ours.
    client
        .batch_execute("CREATE SCHEMA mail; CREATE TABLE mail.accounts (id bigint, status text)")
        .unwrap();
    let error = client.batch_execute(consume).unwrap_err();
    assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE, "{error:?}");
    let unused = "SELECT count(*) FROM post.tokens WHERE consumed_at IS NULL";
    assert_eq!(number(&mut client, unused), 1);
    client
        .batch_execute(
            "DROP SCHEMA mail CASCADE; ALTER SCHEMA post RENAME TO mail; SELECT mail.mailroom_resume()",
        )
        .unwrap();
    eventually("the worker's mail", || {
        (number(&mut client, "SELECT count(*) FROM mail.outbox") == 1).then_some(())
    });
}

#[test]
fn a_lock_that_any_role_can_take_stops_nobody() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE passer_by LOGIN; INSERT INTO budgets (period, amount) VALUES ('month', 100); \
             SELECT mailroom_send('a@example.com', 'S', 'T', group_key => 'g')",
        )
        .unwrap();
    let mut passer_by = cluster.connect_as("app", "passer_by");
    // All that one could think of: tables by their numbers, groups by any hash.
    let locks: i64 = passer_by
        .query_one(
            "SELECT count(pg_advisory_lock(c.oid::integer, k.hash)) FROM pg_class c \
             CROSS JOIN (VALUES (0), (hashtext('g')), (hashtextextended('g', 0)::bit(32)::integer)) k (hash) \
             WHERE c.relname IN ('outbox', 'budgets', 'pending', 'tokens', 'accounts')",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(locks, 15);
    passer_by
        .batch_execute("SELECT pg_advisory_lock(hashtextextended('g', 0)), pg_advisory_lock(0), pg_advisory_lock(hashtext('g'))")
        .unwrap();
    let take = "SELECT _consume_budget(array_fill(1, ARRAY[10]), false)::bigint";
    assert_eq!(number(&mut client, take), 10);
    let claim = "SELECT count(*) FROM mailroom_claim_group(group_key => 'g')";
    assert_eq!(number(&mut client, claim), 1);
    let extend =
        "SELECT count(*) FROM outbox WHERE state = 'claimed' AND mailroom_extend(id, '1 h')";
    assert_eq!(number(&mut client, extend), 1);
}

#[test]
fn a_placeholder_of_a_plain_role_is_no_setting() {
    // Without preloading the library comes with the first call, and finds what the session wrote before.
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; CREATE ROLE sender LOGIN IN ROLE mailroom_collector; \
             INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')",
        )
        .unwrap();
    let attempt = "SET mailroom.link_base_url = 'https://evil.example.com'; SET mailroom.key_file = '/dev/null'; \
         SET mailroom.activation_ttl = '2d'; SET mailroom.requests_per_hour = 1000000; SET mailroom.channel = 'evil'";
    let mut sender = cluster.connect_as("app", "sender");
    sender.batch_execute(attempt).unwrap();
    sender.batch_execute("SELECT mailroom_collect()").unwrap();
    for setting in ["link_base_url", "channel"] {
        let value: String = sender
            .query_one(
                &format!("SELECT current_setting('mailroom.{setting}')"),
                &[],
            )
            .unwrap()
            .get(0);
        assert!(!value.contains("evil"), "{setting}: {value}");
    }
    let link = number(
        &mut client,
        "SELECT count(*) FROM outbox WHERE secrets ? 'link' OR data::text LIKE '%evil%'",
    );
    assert_eq!(link, 0);
    let mut web = cluster.connect_as("app", "web");
    web.batch_execute(attempt).unwrap();
    web.batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')")
        .unwrap();
    assert_eq!(
        number(
            &mut client,
            "SELECT max(expires_at - created_at) FROM tokens"
        ),
        86_400
    );
    // Not by the connection's options, either.
    let error = web
        .batch_execute("SET mailroom.recovery_ttl = '1d'")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE);
}

#[test]
fn a_row_of_somebody_elses_is_not_taken_for_an_account() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE chief LOGIN IN ROLE mailroom_admin; CREATE SCHEMA chief AUTHORIZATION chief; \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
    let mut chief = cluster.connect_as("app", "chief");
    chief
        .batch_execute(
            "CREATE TABLE chief.accounts (id bigint, email text, login text, status public.account_status); \
             CREATE TABLE chief.tokens (id bigint, account bigint, action public.token_action, consumed_at bigint)",
        )
        .unwrap();
    for trigger in [
        "AFTER INSERT ON chief.accounts REFERENCING NEW TABLE AS new_accounts FOR EACH STATEMENT EXECUTE FUNCTION public._accounts_issue_activation()",
        "AFTER UPDATE ON chief.accounts REFERENCING OLD TABLE AS old_accounts NEW TABLE AS new_accounts FOR EACH STATEMENT EXECUTE FUNCTION public._accounts_revoke_tokens()",
        "AFTER UPDATE ON chief.tokens FOR EACH ROW EXECUTE FUNCTION public._tokens_activate_account()",
        "AFTER INSERT ON chief.tokens REFERENCING NEW TABLE AS new_tokens FOR EACH STATEMENT EXECUTE FUNCTION public._tokens_enqueue()",
        "AFTER DELETE ON chief.accounts REFERENCING OLD TABLE AS old_accounts FOR EACH STATEMENT EXECUTE FUNCTION public._accounts_forget()",
    ] {
        let error = chief
            .batch_execute(&format!("CREATE TRIGGER mine {trigger}"))
            .expect_err(trigger);
        assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE, "{error:?}");
    }
    // Those of mailroom_attach can be put anywhere by its members, and do nothing on a table that is not attached, or
    // whose columns are not text.
    chief
        .batch_execute(
            "CREATE TYPE chief.evil AS (x integer); \
             CREATE FUNCTION chief.evil(chief.evil) RETURNS text LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'evil was called by %', current_user; END $$; \
             CREATE CAST (chief.evil AS text) WITH FUNCTION chief.evil(chief.evil); \
             CREATE TABLE chief.evils (email chief.evil); \
             CREATE TRIGGER mailroom_insert AFTER INSERT ON chief.evils REFERENCING NEW TABLE AS new_rows \
                 FOR EACH STATEMENT EXECUTE FUNCTION public._attached_insert()",
        )
        .unwrap();
    let error = chief
        .batch_execute("INSERT INTO chief.evils VALUES (ROW(1))")
        .unwrap_err();
    assert_eq!(
        code(&error),
        &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{error:?}"
    );
    chief
        .batch_execute(
            "CREATE TRIGGER mailroom_email AFTER UPDATE ON chief.evils FOR EACH ROW \
                 WHEN (OLD.email IS DISTINCT FROM NEW.email) EXECUTE FUNCTION public._attached_update(); \
             CREATE TRIGGER mailroom_login AFTER UPDATE ON chief.evils FOR EACH ROW \
                 WHEN (OLD.email IS DISTINCT FROM NEW.email) EXECUTE FUNCTION public._attached_update()",
        )
        .unwrap();
    let error = chief
        .batch_execute("INSERT INTO chief.evils VALUES (ROW(1))")
        .unwrap_err();
    assert_eq!(
        code(&error),
        &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{error:?}"
    );
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 1);
}

#[test]
fn rights_on_a_table_are_no_way_to_more() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_timeout = 0"]);
    client
        .batch_execute(
            "CREATE ROLE mallory LOGIN IN ROLE mailroom_admin; CREATE ROLE web LOGIN IN ROLE mailroom_app; \
             CREATE SCHEMA mallory AUTHORIZATION mallory; GRANT USAGE ON SCHEMA mallory TO PUBLIC",
        )
        .unwrap();
    // A member of mailroom_admin has no right to the machine.
    let mut mallory = cluster.connect_as("app", "mallory");
    mallory
        .batch_execute(
            "CREATE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
        )
        .unwrap();
    for attempt in [
        "SET ROLE mailroom_definer",
        "GRANT mailroom_definer TO mallory",
        "ALTER FUNCTION _tokens_enqueue() SECURITY INVOKER",
        "ALTER FUNCTION _tokens_enqueue() SET search_path = mallory",
        "ALTER FUNCTION mailroom_redeem(text, text) OWNER TO mallory",
        "CREATE OR REPLACE FUNCTION public._live_item_keys(keys text[]) RETURNS TABLE (item_key text, id bigint, state outbox_state, enqueued_by name) LANGUAGE sql AS 'SELECT NULL::text, NULL::bigint, NULL::outbox_state, NULL::name'",
        "DROP FUNCTION mailroom_peek(text)",
        "CREATE TRIGGER mine BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE TRIGGER mine BEFORE INSERT ON tokens FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE TRIGGER mine INSTEAD OF UPDATE ON _own_mail FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE TRIGGER mine INSTEAD OF INSERT ON _new_mail FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE RULE mine AS ON INSERT TO outbox DO ALSO NOTIFY mine",
        "ALTER TABLE outbox ALTER kind SET DEFAULT mallory.trap()",
        "ALTER TABLE tokens ADD CHECK (true)",
        "CREATE INDEX ON tokens (code)",
        "CREATE POLICY mine ON tokens USING (true)",
        "CREATE TABLE mallory.mine (account bigint REFERENCES accounts)",
        "CREATE TABLE mallory.mine () INHERITS (accounts)",
        "TRUNCATE tokens",
        "SELECT mailroom_rotate_key()",
        "ALTER ROLE mallory SUPERUSER",
    ] {
        let error = mallory.batch_execute(attempt).expect_err(attempt);
        assert_eq!(
            code(&error),
            &SqlState::INSUFFICIENT_PRIVILEGE,
            "{attempt}: {error:?}"
        );
    }
    // Nobody's rights are more than those of mailroom_admin, so lending them to its members gives them nothing.
    let excess = number(
        &mut client,
        "SELECT count(*) FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) x \
         WHERE x.grantee = 'mailroom_definer'::regrole AND c.relkind IN ('r', 'v') \
         AND c.relowner <> x.grantee \
         AND NOT has_table_privilege('mailroom_admin', c.oid, x.privilege_type)",
    );
    assert_eq!(excess, 0);

    // Even with TRIGGER, which only a superuser can have given: what the application and the worker do lends nobody
    // a superuser's rights.
    client
        .batch_execute(
            "GRANT TRIGGER ON accounts, tokens, pending, outbox, outbox_attempts, link_requests, job_runs TO mallory",
        )
        .unwrap();
    mallory
        .batch_execute(
            "CREATE TABLE mallory.seen (who name, which name); GRANT INSERT ON mallory.seen TO PUBLIC; \
             CREATE OR REPLACE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN \
                 BEGIN \
                     RESET SESSION AUTHORIZATION; \
                     RESET ROLE; \
                     ALTER ROLE mallory SUPERUSER; \
                 EXCEPTION WHEN OTHERS THEN NULL; \
                 END; \
                 BEGIN \
                     PERFORM public.mailroom_sign('activation', sha256('x')); \
                     INSERT INTO mallory.seen VALUES (current_user, 'signed'); \
                 EXCEPTION WHEN OTHERS THEN NULL; \
                 END; \
                 INSERT INTO mallory.seen VALUES (current_user, TG_RELID::regclass::text); \
                 RETURN NULL; \
             END $$; \
             DO $$ DECLARE t text; BEGIN \
                 FOREACH t IN ARRAY '{accounts,tokens,pending,outbox,outbox_attempts,link_requests,job_runs}'::text[] LOOP \
                     EXECUTE format('CREATE TRIGGER mine AFTER INSERT OR UPDATE OR DELETE ON public.%I FOR EACH ROW EXECUTE FUNCTION mallory.trap()', t); \
                 END LOOP; \
             END $$",
        )
        .unwrap();
    let mut web = cluster.connect_as("app", "web");
    web.batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    eventually("the worker's mail", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
    let token: String = client
        .query_one("SELECT secrets ->> 'token' FROM outbox", &[])
        .unwrap()
        .get(0);
    web.batch_execute("SELECT mailroom_request_recovery('a@example.com')")
        .unwrap();
    web.execute("SELECT mailroom_redeem($1)", &[&token])
        .unwrap();
    web.batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T', item_key => 'k'); SELECT mailroom_cancel_item('k')")
        .unwrap();
    eventually("the answer to the request", || {
        (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    let seen: Vec<(String, String)> = client
        .query(
            "SELECT DISTINCT who::text, which::text FROM mallory.seen ORDER BY 1, 2",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    for (who, which) in &seen {
        assert!(
            ["mailroom_definer", "mailroom_collector", "web"].contains(&who.as_str()),
            "{which} was written as {who}"
        );
        // The collector signs, that is what it is for; nothing the application reaches does.
        assert!(
            which != "signed" || who == "mailroom_collector",
            "{who} signs"
        );
    }
    for expected in ["mailroom_definer", "mailroom_collector", "web"] {
        assert!(
            seen.iter().any(|(who, _)| who == expected),
            "{expected}: {seen:?}"
        );
    }
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM pg_roles WHERE rolname = 'mallory' AND rolsuper"
        ),
        0
    );
}

#[test]
fn a_superusers_event_triggers_are_obeyed_or_fail_it_cleanly() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(
            "CREATE TABLE commands (tag text); \
             CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS \
                 $$ BEGIN INSERT INTO public.commands SELECT command_tag FROM pg_event_trigger_ddl_commands(); END $$; \
             CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = 'RF001'; END $$",
        )
        .unwrap();
    let roles = number(&mut client, "SELECT count(*) FROM pg_roles");
    for tag in [
        "CREATE EXTENSION",
        "CREATE FUNCTION",
        "CREATE TABLE",
        "ALTER FUNCTION",
        "GRANT",
        "COMMENT",
    ] {
        for event in ["ddl_command_start", "ddl_command_end"] {
            client
                .batch_execute(&format!(
                    "CREATE EVENT TRIGGER refuse ON {event} WHEN TAG IN ('{tag}') EXECUTE FUNCTION refuse()"
                ))
                .unwrap();
            let error = client
                .batch_execute("CREATE EXTENSION mailroom")
                .expect_err(tag);
            assert_eq!(code(&error).code(), "RF001", "{error:?}");
            client.batch_execute("DROP EVENT TRIGGER refuse").unwrap();
            assert_eq!(members(&mut client), 0);
            assert_eq!(number(&mut client, "SELECT count(*) FROM pg_roles"), roles);
            assert_eq!(
                number(
                    &mut client,
                    "SELECT count(*) FROM pg_class WHERE relname = 'accounts'"
                ),
                0
            );
        }
    }
    // The launcher may be looking for it just now.
    eventually("no worker", || {
        crate::cluster::find_worker(&mut client)
            .is_none()
            .then_some(())
    });
    client
        .batch_execute(
            "CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION note(); CREATE EXTENSION mailroom; \
             CREATE TABLE people (email text); SELECT mailroom_attach('people', 'email')",
        )
        .unwrap();
    for tag in ["CREATE FUNCTION", "CREATE TABLE", "CREATE TRIGGER"] {
        let noted = number(
            &mut client,
            &format!("SELECT count(*) FROM commands WHERE tag = '{tag}'"),
        );
        assert!(noted > 0, "{tag}");
    }
    client
        .batch_execute("INSERT INTO people VALUES ('a@example.com')")
        .unwrap();
    eventually("its mail", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
}

#[test]
fn databases_share_the_roles_even_when_installed_at_once() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    let databases: Vec<String> = (0..4).map(|number| format!("app{number}")).collect();
    for round in 0..3 {
        for name in &databases {
            client
                .batch_execute(&format!("CREATE DATABASE {name}"))
                .unwrap();
        }
        let barrier = Barrier::new(databases.len());
        std::thread::scope(|scope| {
            for name in &databases {
                let (cluster, barrier) = (&cluster, &barrier);
                scope.spawn(move || {
                    let mut client = cluster.connect(name);
                    barrier.wait();
                    // Whatever isolation it is installed in: the roles are looked up as they are.
                    let isolation = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][round];
                    client
                        .batch_execute(&format!(
                            "BEGIN ISOLATION LEVEL {isolation}; CREATE EXTENSION mailroom; COMMIT"
                        ))
                        .unwrap_or_else(|error| panic!("{name}, {isolation}: {error:?}"));
                });
            }
        });
        assert_eq!(
            number(
                &mut client,
                "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'mailroom\\_%'"
            ),
            7
        );
        // Each database has its own grants: the roles can go when the last one has gone.
        for (index, name) in databases.iter().enumerate() {
            if index + 1 == databases.len() {
                let error = client.batch_execute("DROP ROLE mailroom_app").unwrap_err();
                assert_eq!(code(&error), &SqlState::DEPENDENT_OBJECTS_STILL_EXIST);
            }
            client
                .batch_execute(&format!("DROP DATABASE {name}"))
                .unwrap();
        }
        client
            .batch_execute(
                "DROP ROLE mailroom_app, mailroom_collector, mailroom_sender, mailroom_monitor, mailroom_support, mailroom_admin, \
                 mailroom_definer",
            )
            .unwrap();
    }
}

#[test]
fn a_definer_that_somebody_can_be_is_refused() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE ROLE mallory LOGIN").unwrap();
    for (preparation, detail) in [
        (
            "CREATE ROLE mailroom_definer SUPERUSER",
            "It is a superuser.",
        ),
        ("CREATE ROLE mailroom_definer LOGIN", "It may log in."),
        (
            "CREATE ROLE mailroom_definer CREATEROLE",
            "It has attributes that give it powers.",
        ),
        (
            "CREATE ROLE mailroom_definer BYPASSRLS",
            "It has attributes that give it powers.",
        ),
        (
            "CREATE ROLE mailroom_definer; GRANT mailroom_definer TO mallory",
            "It has members.",
        ),
        (
            "CREATE ROLE mailroom_definer IN ROLE pg_read_all_data",
            "It is a member of another role.",
        ),
    ] {
        client.batch_execute(preparation).unwrap();
        let error = client
            .batch_execute("CREATE EXTENSION mailroom")
            .expect_err(preparation);
        let told = error.as_db_error().unwrap();
        assert_eq!(told.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert_eq!(
            told.message(),
            "role \"mailroom_definer\" cannot be used by mailroom"
        );
        assert_eq!(told.detail(), Some(detail));
        assert_eq!(members(&mut client), 0);
        client.batch_execute("DROP ROLE mailroom_definer").unwrap();
    }
    // One that is as it should be is taken, whoever made it.
    client
        .batch_execute("CREATE ROLE mailroom_definer; CREATE EXTENSION mailroom")
        .unwrap();
}

#[test]
fn a_superuser_of_our_name_is_not_taken_for_ours() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    for role in [
        "mailroom_app",
        "mailroom_sender",
        "mailroom_collector",
        "mailroom_monitor",
        "mailroom_support",
        "mailroom_admin",
    ] {
        client
            .batch_execute(&format!("CREATE ROLE {role} SUPERUSER"))
            .unwrap();
        let error = client
            .batch_execute("CREATE EXTENSION mailroom")
            .expect_err(role);
        let told = error.as_db_error().unwrap();
        assert_eq!(told.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert_eq!(
            told.message(),
            format!("role \"{role}\" cannot be used by mailroom")
        );
        assert_eq!(told.detail(), Some("It is a superuser."));
        client.batch_execute(&format!("DROP ROLE {role}")).unwrap();
    }
    // Roles that people had before and that may log in are taken.
    client
        .batch_execute("CREATE ROLE mailroom_app LOGIN; CREATE EXTENSION mailroom")
        .unwrap();
    let mut app = cluster.connect_as("postgres", "mailroom_app");
    app.batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
}

#[test]
fn links_and_codes_in_any_encoding_are_judged() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    for encoding in ["UTF8", "LATIN1", "WIN1252", "EUC_JP", "SQL_ASCII"] {
        client
            .batch_execute(&format!(
                "CREATE DATABASE {encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
            ))
            .unwrap();
        let mut client = cluster.connect(encoding.to_lowercase().as_str());
        client
            .batch_execute(
                "CREATE EXTENSION mailroom; \
                 INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
                 INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts; \
                 SELECT mailroom_collect()",
            )
            .unwrap_or_else(|error| panic!("{encoding}: {error:?}"));
        // Bytes from outside ASCII, in every length around that of a link and of a code; where the encoding has no
        // such character, the highest of ASCII.
        let odd = match encoding {
            "UTF8" => "convert_from('\\xc3a9', 'UTF8')",
            "EUC_JP" => "convert_from('\\xa4a2', 'EUC_JP')",
            "SQL_ASCII" => "chr(255)",
            _ => "chr(233)",
        };
        let outcomes: String = client
            .query_one(
                &format!(
                    "SELECT string_agg(DISTINCT concat_ws('/', (mailroom_redeem(t, c)).outcome, (mailroom_peek(t)).outcome, \
                         mailroom_verify(t, 'activation', c), mailroom_verify(t, 'password_recovery', c)), ' ') \
                     FROM (SELECT repeat({odd}, n) AS t FROM generate_series(0, 90) n \
                           UNION ALL SELECT overlay(repeat('A', 86) PLACING {odd} FROM n) FROM generate_series(1, 86) n) t, \
                          (VALUES (NULL), (repeat({odd}, 5)), ({odd}), ('1234' || {odd})) c (c)"
                ),
                &[],
            )
            .unwrap_or_else(|error| panic!("{encoding}: {error:?}"))
            .get(0);
        assert_eq!(outcomes, "invalid/invalid/f/f", "{encoding}");
        let outcomes: String = client
            .query_one(
                &format!(
                    "SELECT concat_ws(' ', (mailroom_redeem(secrets ->> 'token', repeat({odd}, 5))).outcome, \
                         (mailroom_redeem(secrets ->> 'token', '1234' || {odd})).outcome, \
                         (mailroom_redeem(secrets ->> 'token', secrets ->> 'code')).outcome) FROM outbox"
                ),
                &[],
            )
            .unwrap_or_else(|error| panic!("{encoding}: {error:?}"))
            .get(0);
        assert_eq!(outcomes, "wrong_code wrong_code ok", "{encoding}");
        // Nor does an address that is none stop a request.
        client
            .batch_execute(&format!(
                "SELECT mailroom_request_recovery(repeat({odd}, n)) FROM generate_series(0, 300, 50) n; \
                 SELECT mailroom_answer_requests()"
            ))
            .unwrap_or_else(|error| panic!("{encoding}: {error:?}"));
        assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
    }
}
