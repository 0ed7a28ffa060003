-- Who may do what: every function, table, column, sequence and type against PUBLIC and the roles of mailroom, so that a
-- grant which comes or goes is seen here.

SET client_min_messages = error;
\set SHOW_CONTEXT never
\set VERBOSITY terse

-- Installing takes a superuser.
CREATE ROLE mail_owner;
SELECT format('GRANT CREATE ON DATABASE %I TO mail_owner', current_database()) \gexec
SET ROLE mail_owner;
CREATE EXTENSION mailroom;
RESET ROLE;
SELECT format('REVOKE CREATE ON DATABASE %I FROM mail_owner', current_database()) \gexec
DROP ROLE mail_owner;

CREATE EXTENSION mailroom;
\pset format unaligned

-- A role with no right but to connect stands for PUBLIC.
CREATE ROLE mail_nobody;
CREATE TEMPORARY TABLE who (place, name) AS VALUES
    (1, 'mail_nobody'), (2, 'mailroom_app'), (3, 'mailroom_sender'), (4, 'mailroom_collector'), (5, 'mailroom_monitor'),
    (6, 'mailroom_support'), (7, 'mailroom_receiver'), (8, 'mailroom_admin'), (9, 'mailroom_definer');
CREATE TEMPORARY VIEW members AS
SELECT d.classid, d.objid
FROM pg_depend d
WHERE d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')
  AND d.deptype = 'e';

-- Functions: who may call them. mailroom_admin may call all but those of triggers, and is left out.
SELECT
    p.oid::regprocedure AS function,
    coalesce(string_agg(w.name, ', ' ORDER BY w.place) FILTER (WHERE has_function_privilege(w.name, p.oid, 'EXECUTE')), '-') AS callers
FROM members m
JOIN pg_proc p ON p.oid = m.objid AND m.classid = 'pg_proc'::regclass
CROSS JOIN who w
WHERE w.name <> 'mailroom_admin'
GROUP BY p.oid
ORDER BY p.oid::regprocedure::text;
SELECT p.oid::regprocedure AS not_callable_by_admin, p.prorettype::regtype AS returns
FROM members m
JOIN pg_proc p ON p.oid = m.objid AND m.classid = 'pg_proc'::regclass
WHERE NOT has_function_privilege('mailroom_admin', p.oid, 'EXECUTE')
ORDER BY p.oid::regprocedure::text;
-- Whose rights a function lends: never a superuser's.
SELECT p.oid::regprocedure AS function, r.rolname AS lends_rights_of, r.rolsuper
FROM members m
JOIN pg_proc p ON p.oid = m.objid AND m.classid = 'pg_proc'::regclass
JOIN pg_roles r ON r.oid = p.proowner
WHERE p.prosecdef
ORDER BY p.oid::regprocedure::text;
-- And no role can become the role whose rights they lend.
SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls
FROM pg_roles
WHERE rolname LIKE 'mailroom\_%'
ORDER BY rolname;

-- Tables and views as a whole.
SELECT
    c.oid::regclass AS relation, w.name AS role,
    concat_ws(', ',
        CASE WHEN has_table_privilege(w.name, c.oid, 'SELECT') THEN 'SELECT' END,
        CASE WHEN has_table_privilege(w.name, c.oid, 'INSERT') THEN 'INSERT' END,
        CASE WHEN has_table_privilege(w.name, c.oid, 'UPDATE') THEN 'UPDATE' END,
        CASE WHEN has_table_privilege(w.name, c.oid, 'DELETE') THEN 'DELETE' END,
        CASE WHEN has_table_privilege(w.name, c.oid, 'TRUNCATE') THEN 'TRUNCATE' END,
        CASE WHEN has_table_privilege(w.name, c.oid, 'REFERENCES') THEN 'REFERENCES' END
    ) AS may
FROM members m
JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'v')
CROSS JOIN who w
WHERE has_table_privilege(w.name, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES')
ORDER BY c.oid::regclass::text, w.place;
-- Only the owner may put a trigger on a table: it would run with the rights of the role that writes to the
-- table, and that may be a superuser.
SELECT c.oid::regclass AS relation, w.name AS role
FROM members m
JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'v')
CROSS JOIN who w
WHERE has_table_privilege(w.name, c.oid, 'TRIGGER')
  AND w.name <> c.relowner::regrole::text
ORDER BY c.oid::regclass::text, w.place;
-- Columns, where the whole is not granted.
SELECT
    c.oid::regclass AS relation, w.name AS role, p.privilege,
    string_agg(a.attname, ', ' ORDER BY a.attnum) AS columns
FROM members m
JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'v')
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN who w
CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('REFERENCES')) p (privilege)
WHERE has_column_privilege(w.name, c.oid, a.attnum, p.privilege)
  AND NOT has_table_privilege(w.name, c.oid, p.privilege)
GROUP BY c.oid, w.place, w.name, p.privilege
ORDER BY c.oid::regclass::text, w.place, p.privilege;
-- Sequences. USAGE is nextval; SELECT and UPDATE would be to read them and set them back.
SELECT
    c.oid::regclass AS sequence,
    string_agg(w.name, ', ' ORDER BY w.place) FILTER (WHERE has_sequence_privilege(w.name, c.oid, 'USAGE')) AS use,
    string_agg(w.name, ', ' ORDER BY w.place) FILTER (WHERE has_sequence_privilege(w.name, c.oid, 'SELECT')) AS see,
    string_agg(w.name, ', ' ORDER BY w.place) FILTER (WHERE has_sequence_privilege(w.name, c.oid, 'UPDATE')) AS set
FROM members m
JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass AND c.relkind = 'S'
CROSS JOIN who w
WHERE has_sequence_privilege(w.name, c.oid, 'USAGE, SELECT, UPDATE')
GROUP BY c.oid
ORDER BY c.oid::regclass::text;
-- Types: PUBLIC may name them, which gives no right to a value.
SELECT t.oid::regtype AS type, t.typtype, string_agg(w.name, ', ' ORDER BY w.place) AS users
FROM members m
JOIN pg_type t ON t.oid = m.objid AND m.classid = 'pg_type'::regclass AND t.typtype IN ('e', 'd', 'c')
LEFT JOIN pg_class c ON c.oid = t.typrelid
CROSS JOIN who w
WHERE has_type_privilege(w.name, t.oid, 'USAGE')
  -- Not the row of a table, which is a member of its own from PostgreSQL 17 on.
  AND c.relkind IS DISTINCT FROM 'r'
  AND c.relkind IS DISTINCT FROM 'v'
GROUP BY t.oid
ORDER BY t.oid::regtype::text;
-- Each kind of object is in one of the lists above.
SELECT m.classid::regclass AS kind, count(*) > 0 AS has_members
FROM members m
GROUP BY m.classid
ORDER BY m.classid::regclass::text;
-- None of the roles is a member of another, and none passes a right on.
SELECT r.rolname, g.rolname AS member_of
FROM pg_auth_members a
JOIN pg_roles r ON r.oid = a.member
JOIN pg_roles g ON g.oid = a.roleid
WHERE r.rolname LIKE 'mailroom%';
CREATE TEMPORARY VIEW lists AS
SELECT m.classid, m.objid, 0 AS attnum, c.relowner AS owner, c.relacl AS list
FROM members m
JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass
UNION ALL
SELECT m.classid, m.objid, a.attnum, c.relowner, a.attacl
FROM members m
JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass
JOIN pg_attribute a ON a.attrelid = c.oid
UNION ALL
SELECT m.classid, m.objid, 0, p.proowner, p.proacl
FROM members m
JOIN pg_proc p ON p.oid = m.objid AND m.classid = 'pg_proc'::regclass
UNION ALL
SELECT m.classid, m.objid, 0, t.typowner, t.typacl
FROM members m
JOIN pg_type t ON t.oid = m.objid AND m.classid = 'pg_type'::regclass;
SELECT classid::regclass AS kind, attnum > 0 AS column, bool_or(list IS NOT NULL) AS has_lists
FROM lists
GROUP BY classid, attnum > 0
ORDER BY classid::regclass::text, attnum > 0;
SELECT pg_describe_object(l.classid, l.objid, l.attnum), x.grantee::regrole, x.privilege_type
FROM lists l
CROSS JOIN LATERAL aclexplode(l.list) x
WHERE x.is_grantable AND x.grantee <> l.owner;

DROP VIEW lists, members;
DROP EXTENSION mailroom;
DROP ROLE mail_nobody;
