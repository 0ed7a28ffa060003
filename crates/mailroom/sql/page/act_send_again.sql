-- Schedules a copy of the mail with the id $1 int8, for support: its id, or NULL if there is no such mail. A copy that this role made within
-- the last ten seconds is the answer instead (is_new: false), since a form may be sent twice.
SELECT
    CASE WHEN c.id IS NULL THEN @extschema@.mailroom_send_again($1::int8) ELSE c.id END AS id,
    c.id IS NULL AS is_new
FROM (
    SELECT (
        SELECT (a.detail ->> 'mail')::int8
        FROM @extschema@.operator_actions a
        WHERE a.outbox_id = $1::int8
          AND a.action = 'sent_again'
          AND a.role = session_user
          AND a.at > clock_timestamp() - interval '10 s'
        ORDER BY a.id DESC
        LIMIT 1
    )
    OFFSET 0
) c (id)
