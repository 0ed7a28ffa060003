-- What the mail with the id $1 int8 says, for admin, each part cut at 1,048,576 characters; is_cut tells whether one was.
-- A part that the mail leaves to the template of its kind is NULL; subject_from_template and body_from_template tell it.
SELECT
    o.from_address::text AS from_address,
    o.list,
    o.subject IS NULL AS subject_from_template,
    o.body_text IS NULL AND o.body_html IS NULL AS body_from_template,
    left(o.body_text, 1048576) AS body_text,
    left(o.body_html, 1048576) AS body_html,
    left(jsonb_pretty(o.data), 1048576) AS data,
    -- As it is, for mailroom_preview.
    CASE WHEN o.subject IS NULL OR (o.body_text IS NULL AND o.body_html IS NULL) THEN o.data::text END AS template_data,
    left(jsonb_pretty(o.headers), 1048576) AS headers,
    greatest(
        char_length(o.body_text), char_length(o.body_html), char_length(jsonb_pretty(o.data)), char_length(jsonb_pretty(o.headers))
    ) > 1048576 AS is_cut
FROM @extschema@.outbox o
WHERE o.id = $1::int8
