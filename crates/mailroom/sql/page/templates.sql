-- The templates in force, for support, by kind and locale.
SELECT
    t.kind,
    t.locale,
    t.subject,
    t.body_text IS NOT NULL AS has_text,
    t.body_html IS NOT NULL AS has_html,
    t.builtin
FROM @extschema@.mailroom_templates t
ORDER BY t.kind, t.locale
