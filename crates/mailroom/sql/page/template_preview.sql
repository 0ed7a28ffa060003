-- What mail of the kind $1 text contains with the variables $2 text (a JSON object; NULL: none but sample values of token mail), in
-- the locale $3 text (NULL: that of the variables, else the default), for support. What a template lacks is an error, which says it.
SELECT
    p.subject,
    left(p.body_text, 1048576) AS body_text,
    left(p.body_html, 1048576) AS body_html,
    greatest(char_length(p.body_text), char_length(p.body_html)) > 1048576 AS is_cut
FROM @extschema@.mailroom_preview($1::text, coalesce($2::text, '{}')::jsonb, $3::text) p
