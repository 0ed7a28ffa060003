-- The outbox: the public record, one row a mail, complete when it is inserted.
--
-- mailroom_collect fills it; senders claim and settle its rows. Invariants: a token is live in at most one
-- row; a row in a final state has its time and, if it failed, its reason; a signed token, a code or a link
-- is only in rows that are still to be sent (I7).

CREATE TYPE @extschema@.outbox_state AS ENUM ('scheduled', 'claimed', 'sent', 'error', 'cancelled', 'expired');
COMMENT ON TYPE @extschema@.outbox_state IS
    'scheduled and claimed are live; sent, error, cancelled and expired are final.';

CREATE TABLE @extschema@.outbox (
    id bigserial,
    message_id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind text NOT NULL,
    token bigint,
    account bigint,
    recipients text[] NOT NULL,
    cc text[] NOT NULL DEFAULT '{}',
    bcc text[] NOT NULL DEFAULT '{}',
    subject text,
    body_text text,
    body_html text,
    data jsonb NOT NULL DEFAULT '{}',
    priority smallint NOT NULL DEFAULT 0,
    state @extschema@.outbox_state NOT NULL DEFAULT 'scheduled',
    send_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT @extschema@._max_attempts(),
    last_error text,
    claimed_by text,
    claimed_until timestamptz,
    item_key text,
    group_key text,
    enqueued_by name NOT NULL DEFAULT current_user,
    provider_id text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT outbox_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_kind_must_not_be_empty CHECK (kind <> ''),
    CONSTRAINT outbox_recipients_must_not_be_empty CHECK (cardinality(recipients) > 0),
    CONSTRAINT outbox_addresses_must_not_be_null_or_empty
        CHECK (('' <> ALL (recipients || cc || bcc)) IS TRUE),
    CONSTRAINT outbox_addresses_must_not_contain_control_characters
        CHECK ((recipients || cc || bcc)::text !~ '[\u0001-\u001F\u007F]'),
    CONSTRAINT outbox_subject_must_be_one_line CHECK (subject !~ '[\u0001-\u001F\u007F]'),
    CONSTRAINT outbox_data_must_be_an_object CHECK (jsonb_typeof(data) = 'object'),
    CONSTRAINT outbox_attempts_must_not_be_negative CHECK (attempts >= 0),
    CONSTRAINT outbox_max_attempts_must_be_positive CHECK (max_attempts > 0),
    CONSTRAINT outbox_claim_must_have_claimant_and_end
        CHECK ((state = 'claimed') = (claimed_by IS NOT NULL AND claimed_until IS NOT NULL)),
    CONSTRAINT outbox_final_state_must_have_its_time
        CHECK ((state IN ('scheduled', 'claimed')) = (ended_at IS NULL)),
    CONSTRAINT outbox_error_must_have_a_reason CHECK (state <> 'error' OR last_error IS NOT NULL),
    CONSTRAINT outbox_final_row_must_not_hold_a_secret
        CHECK (state IN ('scheduled', 'claimed') OR token IS NULL OR NOT data ?| '{token,code,link}')
);
COMMENT ON TABLE @extschema@.outbox IS 'One row a mail: what to send, to whom, when, and what became of it.';
COMMENT ON COLUMN @extschema@.outbox.message_id IS
    'Stays the same over all attempts: the idempotency key for providers and receivers.';
COMMENT ON COLUMN @extschema@.outbox.kind IS 'activation, password_recovery, or a name of the application''s own.';
COMMENT ON COLUMN @extschema@.outbox.token IS 'tokens.id of token mail; the token may be gone meanwhile.';
COMMENT ON COLUMN @extschema@.outbox.account IS 'accounts.id of token mail; the account may be gone meanwhile.';
COMMENT ON COLUMN @extschema@.outbox.recipients IS 'Addresses of the To header, at least one.';
COMMENT ON COLUMN @extschema@.outbox.data IS
    'Variables for the template. Token mail: login, token (signed, 86 characters), code, and link when mailroom.link_base_url is set; all but login vanish when the row ends.';
COMMENT ON COLUMN @extschema@.outbox.priority IS 'Smaller goes first; 0 is normal, recovery mail is -10.';
COMMENT ON COLUMN @extschema@.outbox.send_at IS 'Not before this time.';
COMMENT ON COLUMN @extschema@.outbox.expires_at IS 'Of no use after this time; NULL for never.';
COMMENT ON COLUMN @extschema@.outbox.attempts IS 'Sends that were tried and did not succeed, or may not have.';
COMMENT ON COLUMN @extschema@.outbox.max_attempts IS 'After this many attempts the row ends as error.';
COMMENT ON COLUMN @extschema@.outbox.last_error IS 'Why the latest attempt failed, or why the row ended unsent.';
COMMENT ON COLUMN @extschema@.outbox.claimed_by IS 'Who is sending it.';
COMMENT ON COLUMN @extschema@.outbox.claimed_until IS 'When the claim lapses unless it is settled.';
COMMENT ON COLUMN @extschema@.outbox.item_key IS 'The application''s own key; unique among live rows.';
COMMENT ON COLUMN @extschema@.outbox.group_key IS 'Rows of one group are handed to one sender at a time.';
COMMENT ON COLUMN @extschema@.outbox.enqueued_by IS 'The role that put the row here.';
COMMENT ON COLUMN @extschema@.outbox.provider_id IS 'The provider''s own id for the accepted mail.';
COMMENT ON COLUMN @extschema@.outbox.ended_at IS 'When a final state was reached.';

-- The order in which due rows are claimed. Partial, so that finished rows weigh nothing.
CREATE INDEX outbox_due ON @extschema@.outbox (priority, send_at, id) WHERE state = 'scheduled';
-- Claims that lapsed.
CREATE INDEX outbox_lease ON @extschema@.outbox (claimed_until) WHERE state = 'claimed';
-- A token is live in one row at most (I2); also finds the mail of a token that goes.
CREATE UNIQUE INDEX outbox_live_token ON @extschema@.outbox (token)
    WHERE state IN ('scheduled', 'claimed') AND token IS NOT NULL;
CREATE UNIQUE INDEX outbox_live_item_key ON @extschema@.outbox (item_key)
    WHERE state IN ('scheduled', 'claimed') AND item_key IS NOT NULL;
CREATE INDEX outbox_live_group_key ON @extschema@.outbox (group_key)
    WHERE state IN ('scheduled', 'claimed') AND group_key IS NOT NULL;

CREATE FUNCTION @extschema@._outbox_end() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.token IS NOT NULL THEN
        NEW.data := NEW.data - '{token,code,link}'::text[];
    END IF;
    NEW.claimed_by := NULL;
    NEW.claimed_until := NULL;
    NEW.updated_at := now();
    NEW.ended_at := coalesce(NEW.ended_at, now());
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._outbox_end() IS
    'Internal. Takes the secrets out of a row that reaches a final state, and stamps it.';

-- By a trigger rather than by every writer: a row that was refused for a secret it still holds would show
-- that secret in the error.
CREATE TRIGGER outbox_end
    BEFORE UPDATE OF state ON @extschema@.outbox
    FOR EACH ROW
    WHEN (OLD.state IN ('scheduled', 'claimed') AND NEW.state NOT IN ('scheduled', 'claimed'))
    EXECUTE FUNCTION @extschema@._outbox_end();

CREATE FUNCTION @extschema@._tokens_withdraw() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    -- SKIP LOCKED throughout: a row that a consumer holds is judged again by that consumer or by the next
    -- one, and deleting an account must not wait for either.
    DELETE FROM @extschema@.pending
    WHERE (lane, token) IN (
        SELECT p.lane, p.token
        FROM @extschema@.pending p
        WHERE p.lane IN (0, 1)
          AND p.token = ANY (ARRAY(SELECT id FROM old_tokens))
        FOR UPDATE SKIP LOCKED
    );
    UPDATE @extschema@.outbox
    SET state = 'cancelled',
        last_error = 'token was deleted'
    WHERE id IN (
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.token = ANY (ARRAY(SELECT id FROM old_tokens))
        FOR UPDATE SKIP LOCKED
    );
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_withdraw() IS
    'Internal. Takes back what still waits for tokens that are deleted, alone or with their account.';

CREATE TRIGGER tokens_withdraw
    AFTER DELETE ON @extschema@.tokens
    REFERENCING OLD TABLE AS old_tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_withdraw();

CREATE FUNCTION @extschema@._tokens_withdraw_all() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.pending;
    UPDATE @extschema@.outbox
    SET state = 'cancelled',
        last_error = 'token was deleted'
    WHERE state IN ('scheduled', 'claimed')
      AND token IS NOT NULL;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_withdraw_all() IS
    'Internal. Takes back what waits for tokens when all of them go. RESTART IDENTITY would give their ids to others.';

CREATE TRIGGER tokens_withdraw_all
    AFTER TRUNCATE ON @extschema@.tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_withdraw_all();
