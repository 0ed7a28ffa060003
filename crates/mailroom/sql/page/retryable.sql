-- How many mails act_retry_failed with the same parameters would retry, for support, up to 10,001: of kind $1, transport $2, outcome $3 text, response_code
-- $4 int4, failed within the last $5 text (an interval); NULL: any.
SELECT cardinality(@extschema@._retryable($1::text, $2::text, $3::text::@extschema@.attempt_outcome, $4::int4, now() - $5::text::interval, 10001)) AS mails
