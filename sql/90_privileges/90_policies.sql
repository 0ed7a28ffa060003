-- Row-level security, for applications that switch it on.
--
-- _close (10_roles.sql) gives every table a policy that shows all rows to mailroom's roles. Members of mailroom_app are
-- applications, to which an application's own policies apply; they see only templates.

-- mailroom_send looks for templates with its caller's rights.
CREATE POLICY mailroom_app ON @extschema@.templates FOR SELECT TO mailroom_app USING (true);
