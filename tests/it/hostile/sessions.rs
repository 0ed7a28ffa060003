//! Settings, search paths and encodings of a session.

use super::{assert_everything_was_called, code, traffic};
use crate::cluster::{Cluster, number};
use postgres::Client;
use postgres::error::SqlState;

#[test]
fn a_hostile_search_path_changes_nothing() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "track_functions = all"]);
    let mut client = cluster.connect("postgres");
    // Tables, types, functions and operators with names of PostgreSQL and of the extension, before all others.
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
            // PL/pgSQL does not support "any"; functions that cannot be created are left out.
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
    // Installed, used and dropped with this search_path.
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
    // Makes the session report the functions that it has called.
    client
        .batch_execute("SELECT pg_catalog.pg_stat_force_next_flush() FROM public.jobs")
        .unwrap();
    assert_everything_was_called(&cluster, "app");
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
}

/// Settings that any role may change decide how PostgreSQL reads a function's body: backslashes, nulls, formats.
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
    assert_eq!(code(&error), &SqlState::INVALID_TEXT_REPRESENTATION);
    let hint = error.as_db_error().unwrap().hint();
    assert!(
        hint.is_some_and(|hint| hint.starts_with("An address")),
        "{hint:?}"
    );
    let error = client
        .batch_execute("SELECT mailroom_send('a@example.com', E'S\\nS', 'T')")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::INVALID_PARAMETER_VALUE);
    // A sender that settles too late, and quotes the code in its error.
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
        // A character outside ASCII (in SQL_ASCII the byte 255), repeated up to more than the length of a link, at each
        // place of a link, and in codes.
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
        // A request for an invalid address does not fail either.
        client
            .batch_execute(&format!(
                "SELECT mailroom_request_recovery(repeat({odd}, n)) FROM generate_series(0, 300, 50) n; \
                 SELECT mailroom_answer_requests()"
            ))
            .unwrap_or_else(|error| panic!("{encoding}: {error:?}"));
        assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
    }
}
