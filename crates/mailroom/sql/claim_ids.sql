SELECT c.id, c.failed_attempts AS attempts
FROM mailroom_claim($1, NULL::interval, $2, $3) c
WHERE NOT EXISTS (SELECT FROM pauses)
