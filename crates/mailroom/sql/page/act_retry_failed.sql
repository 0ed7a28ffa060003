-- Schedules failed mail again, for support: how many, up to $6 int4, those that failed first. Of kind $1, transport $2 (empty: none), outcome $3 text,
-- response_code $4 int4, failed since the time $5 text; NULL: any, but one is required.
SELECT @extschema@.mailroom_retry_failed($1::text, $2::text, $3::text::@extschema@.attempt_outcome, $4::int4, $5::text::timestamptz, $6::int4) AS mails
