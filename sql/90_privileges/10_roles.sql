-- Roles: who they are, and that PUBLIC gets nothing.
--
-- The roles belong to the cluster, so a second database finds them and DROP EXTENSION leaves them. Seven are for people
-- and programs; the files after this one grant each what it needs, each line with its reason. The eighth,
-- mailroom_definer, has no members and cannot log in: it owns the SECURITY DEFINER functions and the views. A
-- superuser's functions would lend superuser rights to every trigger that they fire, and functions of mailroom_admin
-- could be altered by its members, for a superuser to run.

-- If two databases install at the same time, one waits here for the other and then finds the roles.
LOCK TABLE pg_catalog.pg_authid IN SHARE ROW EXCLUSIVE MODE;

DO $$
DECLARE
    role_name text;
    granted record;
    objection text;
    sequence record;
BEGIN
    FOREACH role_name IN ARRAY
        ARRAY[
            'mailroom_app', 'mailroom_sender', 'mailroom_collector', 'mailroom_monitor', 'mailroom_support', 'mailroom_receiver', 'mailroom_admin',
            'mailroom_definer'
        ]
    LOOP
        IF to_regrole(role_name) IS NULL THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
        SELECT r.* INTO granted FROM pg_authid r WHERE r.oid = to_regrole(role_name);
        objection := CASE
            WHEN granted.rolsuper THEN 'It is a superuser.'
            WHEN role_name <> 'mailroom_definer' THEN NULL
            WHEN granted.rolcanlogin THEN 'It may log in.'
            WHEN granted.rolcreaterole OR granted.rolcreatedb OR granted.rolreplication OR granted.rolbypassrls
                THEN 'It has attributes that give it powers.'
            WHEN EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = granted.oid) THEN 'It has members.'
            WHEN EXISTS (SELECT FROM pg_auth_members m WHERE m.member = granted.oid) THEN 'It is a member of another role.'
        END;
        IF objection IS NOT NULL THEN
            RAISE object_not_in_prerequisite_state USING
                MESSAGE = format('role "%s" cannot be used by mailroom', role_name),
                DETAIL = objection,
                HINT = 'Rename the role, or remove what it must not have; CREATE EXTENSION creates the role if it does not exist.';
        END IF;
    END LOOP;
    -- If a relation with the intended name exists already, a serial column uses another name for its sequence; the
    -- grants below would then be on the other relation.
    FOR sequence IN
        SELECT t.relname || '_id_seq' AS name
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
        JOIN pg_depend o ON o.classid = 'pg_class'::regclass AND o.objid = s.oid AND o.deptype = 'a'
        JOIN pg_class t ON t.oid = o.refobjid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND s.relname <> t.relname || '_id_seq'
    LOOP
        RAISE duplicate_table USING
            MESSAGE = format('relation "%s" already exists', sequence.name),
            DETAIL = 'The extension needs the name for the sequence of a serial column.',
            HINT = 'Rename the relation, or install the extension into another schema.';
    END LOOP;
END;
$$;

-- Every role has to resolve names.
GRANT USAGE ON SCHEMA @extschema@ TO
    mailroom_app, mailroom_sender, mailroom_collector, mailroom_monitor, mailroom_support, mailroom_receiver, mailroom_admin, mailroom_definer;

-- Long because each kind of object needs a statement of its own.
CREATE FUNCTION @extschema@._close(objects oid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    granted record;
    routine record;
    relation record;
BEGIN
    -- Grants that come from the default privileges of the installing user are revoked, so that each object has the
    -- grants that follow and no others. Types are usable by PUBLIC anyway.
    FOR granted IN
        SELECT o.relation, o.is_sequence, o.routine, o.type, a.grantee::regrole AS grantee
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        CROSS JOIN LATERAL (
            SELECT c.oid::regclass, c.relkind = 'S', NULL::regprocedure, NULL::regtype, c.relacl, c.relowner
            FROM pg_class c
            WHERE d.classid = 'pg_class'::regclass
              AND c.oid = d.objid
            UNION ALL
            SELECT NULL, NULL, p.oid::regprocedure, NULL, p.proacl, p.proowner
            FROM pg_proc p
            WHERE d.classid = 'pg_proc'::regclass
              AND p.oid = d.objid
            UNION ALL
            SELECT NULL, NULL, NULL, t.oid::regtype, t.typacl, t.typowner
            FROM pg_type t
            WHERE d.classid = 'pg_type'::regclass
              AND t.oid = d.objid
        ) o (relation, is_sequence, routine, type, acl, owner)
        CROSS JOIN LATERAL aclexplode(o.acl) a
        WHERE d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND (objects IS NULL OR d.objid = ANY (objects))
          AND a.grantee NOT IN (o.owner, 0)
        GROUP BY 1, 2, 3, 4, 5
    LOOP
        IF granted.routine IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', granted.routine, granted.grantee);
        ELSIF granted.type IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON TYPE %s FROM %s CASCADE', granted.type, granted.grantee);
        ELSIF granted.is_sequence THEN
            EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM %s CASCADE', granted.relation, granted.grantee);
        ELSE
            EXECUTE format('REVOKE ALL ON TABLE %s FROM %s CASCADE', granted.relation, granted.grantee);
        END IF;
    END LOOP;
    -- PUBLIC may execute functions by default. Every function of the extension is revoked from PUBLIC, and every
    -- SECURITY DEFINER function gets its owner, so that none can be forgotten.
    FOR routine IN
        SELECT p.oid::regprocedure AS name, p.prosecdef, p.prorettype = 'trigger'::regtype AS is_trigger
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_proc p ON p.oid = d.objid
        WHERE d.classid = 'pg_proc'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND (objects IS NULL OR d.objid = ANY (objects))
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine.name);
        IF routine.prosecdef THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO mailroom_definer', routine.name);
        END IF;
        -- A role that may execute a trigger function can create a trigger with it on a table of its own, whose rows the
        -- function would take for ours. The extension's own triggers need no such right.
        IF NOT routine.is_trigger THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mailroom_admin', routine.name);
        END IF;
    END LOOP;
    -- Views run with their owner's rights. Those that show secrets keep the installing user as owner, because
    -- mailroom_definer must not read secrets: if a role may read the columns of a row, the server's error messages quote
    -- the values. Each table has a policy that shows all rows to mailroom's roles, for applications that switch row-level
    -- security on.
    FOR relation IN
        SELECT c.oid::regclass AS name, c.relkind, c.relname
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_class c ON c.oid = d.objid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND (objects IS NULL OR d.objid = ANY (objects))
          AND c.relkind IN ('v', 'r', 'S')
    LOOP
        IF relation.relkind = 'S' THEN
            EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM PUBLIC', relation.name);
            CONTINUE;
        END IF;
        EXECUTE format('REVOKE ALL ON TABLE %s FROM PUBLIC', relation.name);
        IF relation.relkind = 'v' AND relation.relname NOT IN ('_mail_secrets', '_token_verdicts') THEN
            EXECUTE format('ALTER VIEW %s OWNER TO mailroom_definer', relation.name);
        ELSIF relation.relkind = 'r' THEN
            EXECUTE format(
                'CREATE POLICY mailroom ON %s TO mailroom_sender, mailroom_collector, mailroom_monitor, mailroom_support, mailroom_admin, mailroom_definer USING (true)',
                relation.name
            );
        END IF;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._close(oid[]) IS
    'Internal. Takes from these new objects of the extension (NULL: all) what default privileges and PUBLIC have, and gives functions and views their owner, tables their policy. An upgrade script calls it before its grants.';

SELECT @extschema@._close(NULL::oid[]);
