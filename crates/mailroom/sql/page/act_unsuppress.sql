-- Lifts the suppressions of the address $1 text on the list $2 text (empty: of all mail), for support: whether there was one, the reasons of those
-- that were in force, and the lists that are suppressed still; all_but_links if that of all mail is for complaints only. With reasons $3 text, joined
-- by commas, nothing is lifted if others are in force: done is NULL.
SELECT
    CASE WHEN $3::text IS NULL OR h.reasons = string_to_array($3::text, ',') THEN @extschema@.mailroom_unsuppress($1::text, $2::text) END::text AS done,
    h.reasons,
    h.still,
    h.all_but_links
FROM (
    SELECT
        coalesce(array_agg(s.reason::text ORDER BY s.reason) FILTER (WHERE s.list = $2::text), '{}') AS reasons,
        coalesce(array_agg(DISTINCT s.list) FILTER (WHERE s.list <> $2::text), '{}') AS still,
        bool_and(s.reason = 'complained') FILTER (WHERE s.list = '' AND s.list <> $2::text) AS all_but_links
    FROM @extschema@.suppressions s
    WHERE s.address = @extschema@.mailroom_address_key($1::text)
      AND (s.until > now()) IS NOT FALSE
) h
