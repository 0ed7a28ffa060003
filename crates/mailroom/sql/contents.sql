SELECT o.kind::text, o.recipients::text[], o.cc::text[], o.bcc::text[], o.subject::text, o.body_text, o.body_html, o.data::text, o.group_key
FROM outbox o
WHERE o.id = $1
