-- The attachments of the mail with the id $1 int8 in order, for support, without their contents.
SELECT
    a.position::int4 AS position,
    a.filename,
    a.content_type,
    -- Of an image that the HTML shows by cid:.
    a.content_id,
    a.size::int8 AS size
FROM @extschema@.outbox_attachments a
WHERE a.outbox_id = $1::int8
ORDER BY a.position
