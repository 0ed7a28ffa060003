-- Operator actions: who retried, cancelled, paused and so on.
--
-- The functions that operators call write a row in their transaction, so that psql is recorded like any tool; a purge deletes
-- them (60_worker/50_purge.sql), people read them, those of a mail in outbox_history too. Invariants: a row names the role that
-- logged in, whichever rights its function has; it contains no address; what an application does to its own mail is in none.

CREATE TYPE @extschema@.operator_action AS ENUM (
    'retried', 'sent_again', 'cancelled', 'rescheduled', 'rerouted', 'paused', 'resumed', 'woken', 'links_ended', 'link_requested',
    'suppressed', 'unsuppressed'
);
COMMENT ON TYPE @extschema@.operator_action IS
    'retried: mailroom_retry or mailroom_retry_failed; sent_again: mailroom_send_again; cancelled, rescheduled: mail of another role; rerouted; paused, resumed, woken: the worker; links_ended: mailroom_revoke; link_requested; suppressed, unsuppressed: addresses, which are not named.';

CREATE TABLE @extschema@.operator_actions (
    id bigserial,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    role name NOT NULL DEFAULT session_user,
    action @extschema@.operator_action NOT NULL,
    outbox_id bigint,
    detail jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT operator_actions_pkey PRIMARY KEY (id),
    CONSTRAINT operator_actions_at_must_be_finite CHECK (isfinite(at)),
    CONSTRAINT operator_actions_detail_must_be_an_object CHECK (jsonb_typeof(detail) = 'object'),
    CONSTRAINT operator_actions_detail_must_not_exceed_4000_octets CHECK (octet_length(detail::text) <= 4000)
);
COMMENT ON TABLE @extschema@.operator_actions IS
    'What operators did to mail, links and the worker, one row a call that changed something. Purged after mailroom.retention.';
COMMENT ON COLUMN @extschema@.operator_actions.at IS 'When the function was called.';
COMMENT ON COLUMN @extschema@.operator_actions.role IS
    'The role that logged in, not that of SET ROLE.';
COMMENT ON COLUMN @extschema@.operator_actions.action IS 'What the role did.';
COMMENT ON COLUMN @extschema@.operator_actions.outbox_id IS
    'outbox.id of the mail; NULL if the action was not about one mail.';
COMMENT ON COLUMN @extschema@.operator_actions.detail IS
    'What else was asked for, and how many rows it concerned.';

CREATE INDEX operator_actions_outbox_id ON @extschema@.operator_actions (outbox_id) WHERE outbox_id IS NOT NULL;

-- Not who and when: see 85_columns.sql.
CREATE VIEW @extschema@._new_actions AS
SELECT a.action, a.outbox_id, a.detail
FROM @extschema@.operator_actions a;
COMMENT ON VIEW @extschema@._new_actions IS 'Internal. Takes what an operator did; who and when is added.';

CREATE FUNCTION @extschema@._is_operator() RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (pg_has_role(c.role, 'mailroom_support', 'USAGE') OR pg_has_role(c.role, 'mailroom_admin', 'USAGE'))
            AND NOT pg_has_role(c.role, 'mailroom_app', 'USAGE'),
        false
    )
    -- Not current_user, which is the owner of a function that lends rights.
    FROM (SELECT to_regrole(quote_ident(coalesce(nullif(current_setting('role'), 'none'), session_user)))::oid) c (role)
$$;
COMMENT ON FUNCTION @extschema@._is_operator() IS
    'Internal. Whether the caller has the rights of mailroom_support or mailroom_admin, and is no application: an application that connects as a superuser is one.';
