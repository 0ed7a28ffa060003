-- Schedules failed mail again, for support: how many, up to 10,000. Of kind $1, transport $2, outcome $3 text, response_code $4 int4, failed within
-- the last $5 text (an interval); NULL: any, but one is required.
SELECT @extschema@.mailroom_retry_failed($1::text, $2::text, $3::text::@extschema@.attempt_outcome, $4::int4, now() - $5::text::interval, 10000) AS mails
