-- Row-level security: policies for our own roles, for applications that switch it on.
--
-- Every table has a policy that shows all rows to mailroom's roles. Members of mailroom_app are applications, to which
-- an application's own policies apply; they see only templates.

DO $$
DECLARE
    own regclass;
BEGIN
    FOR own IN
        SELECT c.oid
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_class c ON c.oid = d.objid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND c.relkind = 'r'
    LOOP
        EXECUTE format(
            'CREATE POLICY mailroom ON %s TO mailroom_sender, mailroom_collector, mailroom_monitor, mailroom_support, mailroom_admin, mailroom_definer USING (true)',
            own
        );
    END LOOP;
END;
$$;

-- mailroom_send looks for templates with its caller's rights.
CREATE POLICY mailroom_app ON @extschema@.templates FOR SELECT TO mailroom_app USING (true);
