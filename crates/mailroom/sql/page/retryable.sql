-- How many mails act_retry_failed with the same parameters would retry, for support, up to 10,001: of kind $1, transport $2 (empty: none), outcome $3 text,
-- response_code $4 int4, failed since $5 text (an interval) before now; NULL: any. since is that time, for act_retry_failed.
SELECT
    cardinality(@extschema@._retryable($1::text, $2::text, $3::text::@extschema@.attempt_outcome, $4::int4, t.since, 10001)) AS mails,
    -- Exact.
    to_char(t.since, 'YYYY-MM-DD HH24:MI:SS.USTZH:TZM') AS since,
    to_char(t.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS shown_since
FROM (SELECT now() - $5::text::interval) t (since)
