-- The kinds of mail for a list of choices, for monitor: those of the last 1,000 mails.
SELECT DISTINCT o.kind::text AS kind
FROM (SELECT i.kind FROM @extschema@.outbox i ORDER BY i.id DESC LIMIT 1000) o
ORDER BY kind
