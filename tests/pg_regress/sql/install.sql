-- What CREATE EXTENSION brings, by name, so that nothing joins or leaves the public surface unseen; that
-- all of it has a comment for \d+ and \df+; that DROP EXTENSION leaves no trace in the
-- database; and that a clash with a table of the application's own fails and leaves nothing.

-- Without the library preloaded there is no worker, and CREATE EXTENSION says so.
CREATE EXTENSION mailroom;
SELECT * FROM jobs;

-- One line more must be one line of difference here.
\pset format unaligned

-- Every member, but for the row and array types that tables and enums bring along.
SELECT o.type, o.identity
FROM pg_depend d
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) o
LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
WHERE d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')
  AND d.deptype = 'e'
  AND (t.oid IS NULL OR t.typtype = 'e')
ORDER BY 1, 2;

-- The members that have no comment; a sequence is its column's.
SELECT o.type, o.identity
FROM pg_depend d
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) o
LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
WHERE d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')
  AND d.deptype = 'e'
  AND (t.oid IS NULL OR t.typtype = 'e')
  AND o.type <> 'sequence'
  AND obj_description(d.objid, d.classid::regclass::name) IS NULL
ORDER BY 1, 2;

-- A comment is two sentences at most; the reference says the rest. Those of internal members say so before.
SELECT pg_describe_object(c.classoid, c.objoid, c.objsubid) AS object, c.description
FROM pg_description c
JOIN pg_depend d ON d.classid = c.classoid AND d.objid = c.objoid
WHERE d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')
  AND d.deptype = 'e'
  AND regexp_replace(c.description, '^Internal\. ', '') ~ '[.!?]\s.*[.!?]\s'
ORDER BY 1;

-- Columns in their order, which INSERT without a list and COPY depend on.
SELECT
    a.attrelid::regclass AS relation,
    a.attname AS column,
    format_type(a.atttypid, a.atttypmod) AS type,
    a.attnotnull AS required,
    a.atthasdef AS has_default
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace
  AND c.relkind IN ('r', 'v')
  AND a.attnum > 0
  AND NOT a.attisdropped
ORDER BY a.attrelid::regclass::text, a.attnum;

-- A claim returns the columns that the outbox has now, in their order; what an application adds later is not among them.
SELECT coalesce(c.attname, o.attname) AS column, c.attnum AS place, format_type(c.atttypid, c.atttypmod) AS type
FROM (SELECT * FROM pg_attribute WHERE attrelid = 'claimed_mail'::regclass) c
FULL JOIN (SELECT * FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attnum > 0) o
    ON (o.attname, o.attnum, o.atttypid, o.atttypmod, o.attcollation) = (c.attname, c.attnum, c.atttypid, c.atttypmod, c.attcollation)
WHERE c.attname IS NULL OR o.attname IS NULL;

SELECT t.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) AS labels
FROM pg_type t
JOIN pg_enum e ON e.enumtypid = t.oid
GROUP BY t.typname
ORDER BY t.typname;

-- Constraints say by their name what is wrong. (NOT NULL is listed above; since version 18 it has a
-- generated name of its own.)
SELECT conrelid::regclass AS relation, contype AS type, conname AS name
FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
  AND contype <> 'n'
ORDER BY conrelid::regclass::text, contype, conname;

SELECT indrelid::regclass AS relation, indexrelid::regclass AS name, indpred IS NOT NULL AS partial
FROM pg_index
JOIN pg_class c ON c.oid = indrelid
WHERE c.relnamespace = 'public'::regnamespace
ORDER BY indrelid::regclass::text, indexrelid::regclass::text;

SELECT tgrelid::regclass AS relation, tgname AS name, tgfoid::regproc AS function
FROM pg_trigger
JOIN pg_class c ON c.oid = tgrelid
WHERE c.relnamespace = 'public'::regnamespace
  AND NOT tgisinternal
ORDER BY tgrelid::regclass::text, tgname;

-- How each function is called, and that its search_path is pinned with pg_temp last. Functions in C are
-- exempt: they look up no name.
SELECT
    p.proname AS name,
    pg_get_function_arguments(p.oid) AS arguments,
    pg_get_function_result(p.oid) AS result,
    l.lanname AS language,
    CASE p.provolatile WHEN 'v' THEN 'volatile' WHEN 's' THEN 'stable' ELSE 'immutable' END AS volatility,
    p.prosecdef AS definer,
    coalesce(
        (SELECT bool_or(setting ~ '^search_path=pg_catalog, (public, )?pg_temp$') FROM unnest(p.proconfig) setting),
        false
    ) AS pinned
FROM pg_proc p
JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'public'::regnamespace
ORDER BY p.proname, 2;

-- A second time, and in a second schema: there is one mailroom to a database.
CREATE EXTENSION mailroom;
CREATE SCHEMA elsewhere;
CREATE EXTENSION mailroom SCHEMA elsewhere;
DROP SCHEMA elsewhere;

-- Not relocatable: function bodies name their schema.
ALTER EXTENSION mailroom SET SCHEMA pg_catalog;

-- Nothing stays behind.
DROP EXTENSION mailroom;
SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace;
SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace;
SELECT count(*) FROM pg_type WHERE typnamespace = 'public'::regnamespace;
-- Roles belong to the cluster and may be in use by another database.
SELECT rolname, rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb
FROM pg_roles WHERE rolname LIKE 'mailroom%' ORDER BY 1;
-- Nor can DROP EXTENSION take back the right to use the schema: nothing of an extension runs then.
SELECT DISTINCT r.rolname, d.classid::regclass
FROM pg_shdepend d
JOIN pg_roles r ON d.refclassid = 'pg_authid'::regclass AND d.refobjid = r.oid
WHERE r.rolname LIKE 'mailroom%'
  AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1;

-- A table of the application's own that has the name: PostgreSQL's own error.
CREATE TABLE accounts (name text);
\set VERBOSITY terse
CREATE EXTENSION mailroom;
\echo :SQLSTATE
\set VERBOSITY default
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace;
SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace;
SELECT count(*) FROM pg_extension WHERE extname = 'mailroom';

-- The way out is a schema of its own.
SET client_min_messages = error;
CREATE SCHEMA mailroom;
CREATE EXTENSION mailroom SCHEMA mailroom;
SELECT * FROM mailroom.jobs;
-- The schema cannot go from under it.
\set VERBOSITY terse
DROP SCHEMA mailroom;
\echo :SQLSTATE
\set VERBOSITY default
DROP EXTENSION mailroom;
DROP SCHEMA mailroom;
DROP TABLE accounts;
