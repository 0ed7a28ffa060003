-- Accounts and their lifecycle: provisioned -> active <-> suspended.
--
-- Applications write this table; triggers stamp the times and hand new accounts their activation token
-- (20_tokens.sql). Invariants: an email and a login belong to one account regardless of case, because
-- both are stored in lower case; every status change leaves its time. Times are epoch seconds.

CREATE TYPE @extschema@.account_status AS ENUM ('provisioned', 'active', 'suspended');
COMMENT ON TYPE @extschema@.account_status IS
    'provisioned: not activated yet; active; suspended: may not activate, recover or get token mail.';

CREATE TABLE @extschema@.accounts (
    id bigserial,
    email text NOT NULL,
    status @extschema@.account_status NOT NULL DEFAULT 'provisioned',
    login text NOT NULL,
    created_at bigint NOT NULL DEFAULT floor(extract(epoch FROM now())),
    status_changed_at bigint,
    activated_at bigint,
    suspended_at bigint,
    unsuspended_at bigint,
    CONSTRAINT accounts_pkey PRIMARY KEY (id),
    -- Both keys are over lower-case text, so ON CONFLICT (email) finds any spelling.
    CONSTRAINT accounts_email_key UNIQUE (email),
    CONSTRAINT accounts_login_key UNIQUE (login),
    CONSTRAINT accounts_email_must_be_lower_case CHECK (email = lower(email)),
    CONSTRAINT accounts_login_must_be_lower_case CHECK (login = lower(login)),
    CONSTRAINT accounts_email_must_contain_an_at_sign CHECK (email ~ '^[^@]+@[^@]+$'),
    CONSTRAINT accounts_email_must_not_contain_control_characters
        CHECK (email !~ '[\u0001-\u001F\u007F]'),
    CONSTRAINT accounts_email_must_not_contain_spaces CHECK (position(' ' IN email) = 0),
    CONSTRAINT accounts_login_must_not_be_empty CHECK (login <> ''),
    CONSTRAINT accounts_login_must_not_contain_control_characters
        CHECK (login !~ '[\u0001-\u001F\u007F]'),
    -- RFC 5321 section 4.5.3.1.3 leaves 254 characters for an address.
    CONSTRAINT accounts_email_must_not_exceed_254_characters CHECK (char_length(email) <= 254),
    CONSTRAINT accounts_login_must_not_exceed_254_characters CHECK (char_length(login) <= 254)
);
COMMENT ON TABLE @extschema@.accounts IS
    'One row a person. INSERT (email, login) and an activation mail is on its way at COMMIT.';
COMMENT ON COLUMN @extschema@.accounts.email IS
    'Address, at most 254 characters, kept in lower case whatever was written; unique.';
COMMENT ON COLUMN @extschema@.accounts.status IS 'Change it by UPDATE; the times below follow.';
COMMENT ON COLUMN @extschema@.accounts.login IS
    'Name to sign in with, at most 254 characters, kept in lower case whatever was written; unique.';
COMMENT ON COLUMN @extschema@.accounts.created_at IS 'Epoch seconds.';
COMMENT ON COLUMN @extschema@.accounts.status_changed_at IS 'Epoch seconds of the latest status change.';
COMMENT ON COLUMN @extschema@.accounts.activated_at IS
    'Epoch seconds of the latest activation; NULL while the account was never activated.';
COMMENT ON COLUMN @extschema@.accounts.suspended_at IS 'Epoch seconds; NULL unless suspended.';
COMMENT ON COLUMN @extschema@.accounts.unsuspended_at IS
    'Epoch seconds of the latest unsuspension; NULL while suspended.';

CREATE FUNCTION @extschema@._accounts_normalise() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.email := lower(NEW.email);
    NEW.login := lower(NEW.login);
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_normalise() IS 'Internal. Keeps email and login in lower case.';

-- BEFORE, because the unique keys and ON CONFLICT look at what is stored; WHEN, because most rows come in
-- lower case and need not pay for a function.
CREATE TRIGGER accounts_normalise
    BEFORE INSERT OR UPDATE OF email, login ON @extschema@.accounts
    FOR EACH ROW
    WHEN (NEW.email <> lower(NEW.email) OR NEW.login <> lower(NEW.login))
    EXECUTE FUNCTION @extschema@._accounts_normalise();

CREATE FUNCTION @extschema@._accounts_stamp_status() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
BEGIN
    IF TG_OP = 'INSERT' AND @extschema@._restores() THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status = 'suspended' THEN
        NEW.suspended_at := NULL;
        NEW.unsuspended_at := stamp;
        -- Whoever lifts a suspension says 'active'; somebody who never proved the mailbox is not.
        IF NEW.activated_at IS NULL THEN
            NEW.status := 'provisioned';
        END IF;
    ELSIF NEW.status = 'active' THEN
        NEW.activated_at := CASE TG_OP WHEN 'INSERT' THEN coalesce(NEW.activated_at, stamp) ELSE stamp END;
    ELSIF NEW.status = 'suspended' THEN
        NEW.suspended_at := CASE TG_OP WHEN 'INSERT' THEN coalesce(NEW.suspended_at, stamp) ELSE stamp END;
        NEW.unsuspended_at := NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        NEW.status_changed_at := stamp;
    END IF;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_stamp_status() IS
    'Internal. Stamps and clears the times of a status change, in the row that is being written.';

CREATE TRIGGER accounts_stamp_insert
    BEFORE INSERT ON @extschema@.accounts
    FOR EACH ROW
    WHEN (NEW.status <> 'provisioned')
    EXECUTE FUNCTION @extschema@._accounts_stamp_status();

CREATE TRIGGER accounts_stamp_update
    BEFORE UPDATE OF status ON @extschema@.accounts
    FOR EACH ROW
    WHEN (OLD.status <> NEW.status)
    EXECUTE FUNCTION @extschema@._accounts_stamp_status();
