//! Attacks by other roles: objects with names of the extension, functions that would be called instead of its own,
//! roles with unexpected attributes, unusual schemas, and attempts to gain privileges.

mod planted;
mod rights;
mod roles;
mod schemas;
mod sessions;

use crate::cluster::{Cluster, eventually};
use postgres::Client;
use postgres::error::SqlState;

/// Calls of everything that can be called, with exact types.
const TRAFFIC: &str = include_str!("../hostile/traffic.sql");

/// The functions whose calls the server counts. Functions in SQL are inlined, and those in C are not counted either:
/// for these see [`the_traffic_calls_every_public_function`].
const COUNTED: &str = "SELECT p.oid::regprocedure::text \
     FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_language l ON l.oid = p.prolang \
     WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
     AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') AND l.lanname = 'plpgsql'";

/// Runs the traffic with the extension in this schema, quoted as an identifier.
fn traffic(client: &mut Client, schema: &str) {
    for statement in TRAFFIC.split("\n\n") {
        let statement = statement.replace("@s@", schema);
        if let Err(error) = client.batch_execute(&statement) {
            panic!("{statement}\n{error:?}");
        }
    }
}

/// Fails unless the traffic has called every counted function.
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

fn code(error: &postgres::Error) -> &SqlState {
    error
        .code()
        .unwrap_or_else(|| panic!("not the server's error: {error}"))
}

/// Creates overloads of each function of the extension: with another type in each place, with fewer and with more
/// arguments, and variadic. A call that does not match the original exactly matches one of these better.
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
-- Operators for the domains of the extension: an exact fit is preferred to that for the type that a domain is over.
DO $$
DECLARE
    taken record;
BEGIN
    FOR taken IN
        SELECT o.name, l.type AS l, r.type AS r
        FROM unnest(ARRAY['=', '<>', '<', '>', '<=', '>=', '||', '~', '!~', '*', '-', '+']) o (name)
        CROSS JOIN (
            SELECT format_type(d.oid, NULL), format_type(d.typbasetype, NULL)
            FROM pg_type d
            WHERE d.typtype = 'd'
              AND d.typnamespace = 'public'::regnamespace
            UNION
            VALUES ('double precision', 'integer'), ('bigint', 'text')
        ) t (type, base)
        CROSS JOIN LATERAL (VALUES (t.type), (t.base)) l (type)
        CROSS JOIN LATERAL (VALUES (t.type), (t.base)) r (type)
        WHERE NOT (l.type = t.base AND r.type = t.base)
          AND NOT (l.type = 'double precision' AND r.type = 'double precision')
          AND NOT (l.type = 'bigint' AND r.type = 'bigint')
    LOOP
        IF to_regprocedure(format('public.trap(%s, %s)', taken.l, taken.r)) IS NULL THEN
            EXECUTE format(
                'CREATE FUNCTION public.trap(%s, %s) RETURNS boolean LANGUAGE plpgsql AS %L',
                taken.l, taken.r, 'BEGIN RAISE EXCEPTION ''a planted operator was called''; END'
            );
        END IF;
        EXECUTE format(
            'CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.trap)', taken.name, taken.l, taken.r
        );
    END LOOP;
END;
$$;
-- In the same way functions of PostgreSQL's names, also where its own take any array.
DO $$
DECLARE
    taken record;
BEGIN
    FOR taken IN
        SELECT f.name, t.type
        FROM unnest(ARRAY[
            'unnest', 'octet_length', 'char_length', 'length', 'cardinality', 'lower', 'upper', 'btrim', 'quote_ident',
            'array_agg', 'count', 'min', 'max', 'to_jsonb', 'jsonb_typeof', 'array_length', 'num_nonnulls', 'make_interval'
        ]) f (name)
        CROSS JOIN (
            SELECT format_type(u.type, NULL)
            FROM pg_type d
            CROSS JOIN LATERAL unnest(ARRAY[d.oid, d.typarray]) u (type)
            WHERE d.typtype = 'd'
              AND d.typnamespace = 'public'::regnamespace
            UNION
            SELECT unnest(ARRAY[
                'text[]', 'double precision[]', 'bigint[]', 'integer[]', 'boolean[]', 'uuid[]', 'jsonb[]', 'interval[]',
                'double precision', 'outbox_state', 'token_action'
            ])
        ) t (type)
    LOOP
        EXECUTE format(
            'CREATE FUNCTION public.%I(%s) RETURNS integer LANGUAGE plpgsql AS %L',
            taken.name, taken.type, format('BEGIN RAISE EXCEPTION ''a planted %s(%s) was called''; END', taken.name, taken.type)
        );
    END LOOP;
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

/// A database in which an ordinary role has created all this in the extension's schema.
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
