-- The kinds of mail for a list of choices, for support: those with a template, and those of the last 1,000 mails.
SELECT t.kind
FROM @extschema@.mailroom_templates t
UNION
SELECT o.kind::text
FROM (SELECT i.kind FROM @extschema@.outbox i ORDER BY i.id DESC LIMIT 1000) o
ORDER BY kind
