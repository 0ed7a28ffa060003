-- What an installed extension is made of, as lines of text without numbers that differ from one installation to
-- another: two installations are the same if their lines are. Run with an empty search_path.
WITH extension AS (
    SELECT e.oid, e.extname, e.extversion, e.extnamespace, e.extconfig, e.extcondition
    FROM pg_extension e
    WHERE e.extname = 'mailroom'
), member AS (
    SELECT d.classid, d.objid
    FROM pg_depend d
    JOIN extension e ON d.refobjid = e.oid
    WHERE d.refclassid = 'pg_extension'::regclass
      AND d.deptype = 'e'
), relation AS (
    SELECT c.*
    FROM pg_class c
    JOIN member m ON m.objid = c.oid
    WHERE m.classid = 'pg_class'::regclass
    UNION ALL
    -- Their indexes, and the sequences of their columns, which are no members by themselves.
    SELECT c.*
    FROM pg_class c
    WHERE c.oid IN (
        SELECT d.objid
        FROM pg_depend d
        JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = d.refobjid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_class'::regclass
          AND d.deptype IN ('a', 'i')
      )
      AND c.relkind IN ('i', 'S')
      AND NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_class'::regclass AND m.objid = c.oid)
), acl (classid, objid, objsubid, owner, privileges) AS (
    SELECT 'pg_class'::regclass, r.oid, 0, r.relowner, r.relacl FROM relation r
    UNION ALL
    SELECT 'pg_class'::regclass, a.attrelid, a.attnum, r.relowner, a.attacl
    FROM pg_attribute a
    JOIN relation r ON r.oid = a.attrelid
    WHERE NOT a.attisdropped
      AND a.attacl IS NOT NULL
    UNION ALL
    SELECT 'pg_proc'::regclass, p.oid, 0, p.proowner, p.proacl
    FROM pg_proc p
    JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
    UNION ALL
    SELECT 'pg_type'::regclass, t.oid, 0, t.typowner, t.typacl
    FROM pg_type t
    JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
    UNION ALL
    SELECT 'pg_namespace'::regclass, n.oid, 0, n.nspowner, n.nspacl
    FROM pg_namespace n
    JOIN extension e ON e.extnamespace = n.oid
)
SELECT format('extension %s', e.extversion) AS line FROM extension e
UNION ALL
SELECT format('%s %s: %s', o.type, o.identity, obj_description(m.objid, m.classid::regclass::name))
FROM member m
CROSS JOIN LATERAL pg_identify_object(m.classid, m.objid, 0) o
UNION ALL
SELECT format(
    '%s: kind %s, persistence %s, options %s, row security %s %s, replica identity %s', r.oid::regclass, r.relkind,
    r.relpersistence, (SELECT array_agg(x ORDER BY x) FROM unnest(r.reloptions) x), r.relrowsecurity,
    r.relforcerowsecurity, r.relreplident
)
FROM relation r
UNION ALL
SELECT format(
    '%s column %s %s: %s, not null %s, default %s, identity "%s", generated "%s", collation %s, storage %s %s, options %s: %s',
    a.attrelid::regclass, rank() OVER (PARTITION BY a.attrelid ORDER BY a.attnum), a.attname,
    format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated,
    nullif(a.attcollation, 0)::regcollation, a.attstorage, a.attcompression,
    -- Some minor versions of the server note there when a column was made.
    (SELECT array_agg(x ORDER BY x) FROM unnest(a.attoptions) x WHERE x NOT LIKE 'pg\_attver=%'),
    col_description(a.attrelid, a.attnum)
)
FROM pg_attribute a
JOIN relation r ON r.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0
  AND NOT a.attisdropped
UNION ALL
SELECT format('%s index: %s, valid %s', i.indrelid::regclass, pg_get_indexdef(i.indexrelid), i.indisvalid)
FROM pg_index i
JOIN relation r ON r.oid = i.indrelid
UNION ALL
SELECT format(
    '%s%s constraint %s: %s, valid %s: %s', nullif(c.conrelid, 0)::regclass, nullif(c.contypid, 0)::regtype, c.conname,
    pg_get_constraintdef(c.oid), c.convalidated, obj_description(c.oid, 'pg_constraint')
)
FROM pg_constraint c
WHERE c.conrelid IN (SELECT r.oid FROM relation r)
   OR c.contypid IN (SELECT m.objid FROM member m WHERE m.classid = 'pg_type'::regclass)
UNION ALL
SELECT format('%s, enabled %s: %s', pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger'))
FROM pg_trigger t
JOIN relation r ON r.oid = t.tgrelid
WHERE NOT t.tgisinternal
UNION ALL
SELECT format('rule: %s', pg_get_ruledef(w.oid))
FROM pg_rewrite w
JOIN relation r ON r.oid = w.ev_class
UNION ALL
SELECT format('policy %s of %s', p.polname, p.polrelid::regclass)
FROM pg_policy p
JOIN relation r ON r.oid = p.polrelid
UNION ALL
SELECT pg_get_functiondef(p.oid)
FROM pg_proc p
JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
WHERE p.prokind IN ('f', 'p')
UNION ALL
SELECT format('enum %s: %s', e.enumtypid::regtype, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder))
FROM pg_enum e
JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = e.enumtypid
GROUP BY e.enumtypid
UNION ALL
SELECT format('domain %s: %s, not null %s, default %s', t.oid::regtype, format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault)
FROM pg_type t
JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
WHERE t.typtype = 'd'
UNION ALL
SELECT format(
    'sequence %s: %s, start %s, increment %s, from %s to %s, cache %s, cycle %s', s.seqrelid::regclass,
    s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle
)
FROM pg_sequence s
JOIN relation r ON r.oid = s.seqrelid
UNION ALL
SELECT format('owner of %s: %s', o.identity, a.owner::regrole)
FROM acl a
CROSS JOIN LATERAL pg_identify_object(a.classid, a.objid, a.objsubid) o
UNION ALL
SELECT format('rights on %s: %s', o.identity, (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(a.privileges) x))
FROM acl a
CROSS JOIN LATERAL pg_identify_object(a.classid, a.objid, a.objsubid) o
UNION ALL
-- Those that pg_dump takes for the extension's own.
SELECT format('initial rights on %s: %s', o.identity, (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(i.initprivs) x))
FROM pg_init_privs i
CROSS JOIN LATERAL pg_identify_object(i.classoid, i.objoid, i.objsubid) o
WHERE (i.classoid, i.objoid) IN (SELECT a.classid, a.objid FROM acl a)
UNION ALL
SELECT format('dumped: %s %s', c.relation::regclass, c.condition)
FROM extension e
CROSS JOIN LATERAL unnest(e.extconfig, e.extcondition) c (relation, condition)
UNION ALL
SELECT format(
    'role %s: superuser %s, login %s, inherit %s, createrole %s, createdb %s, replication %s, bypassrls %s, member of %s',
    r.rolname, r.rolsuper, r.rolcanlogin, r.rolinherit, r.rolcreaterole, r.rolcreatedb, r.rolreplication, r.rolbypassrls,
    (SELECT array_agg(g.roleid::regrole::text ORDER BY 1) FROM pg_auth_members g WHERE g.member = r.oid)
)
FROM pg_roles r
WHERE r.rolname LIKE 'mailroom\_%'
ORDER BY line
