-- All that a claim returns of a mail that is already claimed, as one text.
SELECT c::text
FROM outbox o
CROSS JOIN LATERAL _claim_rows(ARRAY[o.ctid], $2, now(), interval '1 minute') c
WHERE o.id = $1
