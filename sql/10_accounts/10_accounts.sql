-- Accounts and their lifecycle: provisioned -> active <-> suspended.
--
-- Applications write this table. Its trigger normalises email and login (the rules are in src/accounts/) and stamps the
-- times; the triggers that give an account its tokens are in 20_tokens/. Invariants: a mailbox has one account, however
-- its address is written, because the key of the address is stored; a login belongs to one account regardless of case,
-- because it is stored in lower case; every status change leaves its time. Times are epoch seconds.

CREATE TYPE @extschema@.account_status AS ENUM ('provisioned', 'active', 'suspended');
COMMENT ON TYPE @extschema@.account_status IS
    'provisioned: not yet activated; active: activated; suspended: cannot activate, recover or get token mail.';

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
    -- Both keys are over normalised text, so ON CONFLICT (email) finds any spelling.
    CONSTRAINT accounts_email_key UNIQUE (email),
    CONSTRAINT accounts_login_key UNIQUE (login)
    -- Free space for the activated version of a row: it stays on its page, and no index entry is added.
) WITH (fillfactor = 80);
COMMENT ON TABLE @extschema@.accounts IS
    'One row for each person. An INSERT of email and login sends an activation mail at COMMIT.';
COMMENT ON COLUMN @extschema@.accounts.email IS
    'An address that mail can be sent to, stored as mailroom_address_key returns it: in lower case, the domain in ASCII; unique.';
COMMENT ON COLUMN @extschema@.accounts.status IS 'Change it by UPDATE; triggers set the columns with the times.';
COMMENT ON COLUMN @extschema@.accounts.login IS
    'Name to sign in with: 1 to 254 characters, none of them a control character or invisible, without blanks around it; stored in lower case; unique.';
COMMENT ON COLUMN @extschema@.accounts.created_at IS 'Epoch seconds.';
COMMENT ON COLUMN @extschema@.accounts.status_changed_at IS 'Epoch seconds of the latest status change.';
COMMENT ON COLUMN @extschema@.accounts.activated_at IS
    'Epoch seconds of the latest activation; NULL while the account was never activated.';
COMMENT ON COLUMN @extschema@.accounts.suspended_at IS 'Epoch seconds; NULL unless suspended.';
COMMENT ON COLUMN @extschema@.accounts.unsuspended_at IS
    'Epoch seconds of the latest unsuspension; NULL while suspended.';

CREATE FUNCTION @extschema@._account_is_plain(email text, login text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_account_is_plain_wrapper';
COMMENT ON FUNCTION @extschema@._account_is_plain(text, text) IS
    'Internal. Whether email and login are valid, and ASCII in lower case, so that they are stored as they are.';

CREATE FUNCTION @extschema@._account_problem(email text, login text, OUT rule text, OUT detail text, OUT hint text)
    RETURNS SETOF record
    LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 1
    AS 'MODULE_PATHNAME', '_account_problem_wrapper';
COMMENT ON FUNCTION @extschema@._account_problem(text, text) IS
    'Internal. The first rule that an email or a login in lower case violates, with the name of its constraint; no row if both are valid, or one is NULL.';

CREATE FUNCTION @extschema@._normalised(account @extschema@.accounts) RETURNS @extschema@.accounts
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    problem record;
BEGIN
    account.login := @extschema@._fold(account.login);
    SELECT p.rule, p.detail, p.hint INTO problem FROM @extschema@._account_problem(account.email, account.login) p;
    IF NOT FOUND THEN
        account.email := @extschema@.mailroom_address_key(account.email);
    ELSIF NOT @extschema@._is_restoring() THEN
        -- A CHECK constraint with this name would do the same, but every statement would compile it again.
        RAISE check_violation USING
            MESSAGE = format('new row for relation "accounts" violates check constraint "%s"', problem.rule),
            DETAIL = problem.detail,
            HINT = problem.hint,
            SCHEMA = (parse_ident('@extschema@'))[1],
            TABLE = 'accounts',
            CONSTRAINT = problem.rule;
    END IF;
    RETURN account;
END;
$$;
COMMENT ON FUNCTION @extschema@._normalised(@extschema@.accounts) IS
    'Internal. The row with the key of its email and its login in lower case; raises a check violation with the name of the rule if one is invalid, unless the row comes from a dump.';

CREATE FUNCTION @extschema@._new_account(account @extschema@.accounts) RETURNS @extschema@.accounts
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
BEGIN
    account := @extschema@._normalised(account);
    -- An account that is inserted with a status, for example from another system, keeps the times it brings; one that
    -- comes from a dump is stored as it was.
    IF account.status = 'active' AND account.activated_at IS NULL AND NOT @extschema@._is_restoring() THEN
        account.activated_at := stamp;
    ELSIF account.status = 'suspended' AND NOT @extschema@._is_restoring() THEN
        account.suspended_at := coalesce(account.suspended_at, stamp);
        account.unsuspended_at := NULL;
    END IF;
    RETURN account;
END;
$$;
COMMENT ON FUNCTION @extschema@._new_account(@extschema@.accounts) IS
    'Internal. A new account as it is stored: normalised, with the time of its status.';

CREATE FUNCTION @extschema@._changed_account(account @extschema@.accounts, before @extschema@.accounts)
RETURNS @extschema@.accounts
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
BEGIN
    -- A row that a rule of today would refuse can still be suspended, and its person can still change the rest.
    IF account.email COLLATE "C" <> before.email COLLATE "C" OR account.login COLLATE "C" <> before.login COLLATE "C" THEN
        account := @extschema@._normalised(account);
    END IF;
    IF account.status <> before.status THEN
        account.status_changed_at := stamp;
        IF before.status = 'suspended' THEN
            account.suspended_at := NULL;
            account.unsuspended_at := stamp;
            -- Applications lift a suspension by setting 'active'; an account whose mailbox was never verified becomes
            -- provisioned.
            IF account.activated_at IS NULL THEN
                account.status := 'provisioned';
            END IF;
        ELSIF account.status = 'active' THEN
            account.activated_at := stamp;
        ELSIF account.status = 'suspended' THEN
            account.suspended_at := stamp;
            account.unsuspended_at := NULL;
        END IF;
    END IF;
    RETURN account;
END;
$$;
COMMENT ON FUNCTION @extschema@._changed_account(@extschema@.accounts, @extschema@.accounts) IS
    'Internal. A changed account as it is stored: normalised, with the times of its status.';

CREATE FUNCTION @extschema@._accounts_normalise() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Almost every new row can be stored as it is, and one expression decides that: each expression is prepared again
    -- in each transaction.
    IF TG_OP = 'INSERT' AND @extschema@._account_is_plain(NEW.email, NEW.login) AND NEW.status = 'provisioned' THEN
        RETURN NEW;
    ELSIF TG_OP = 'INSERT' THEN
        RETURN @extschema@._new_account(NEW);
    END IF;
    RETURN @extschema@._changed_account(NEW, OLD);
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_normalise() IS
    'Internal. Normalises email and login, rejects invalid ones, and sets and clears the times of a status change.';

CREATE FUNCTION @extschema@._accounts_columns() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- Not currval: the statement, or triggers, may have taken others since.
    last_id CONSTANT bigint := CASE
        WHEN has_sequence_privilege('@extschema@.accounts_id_seq'::regclass, 'USAGE, SELECT')
            THEN pg_sequence_last_value('@extschema@.accounts_id_seq'::regclass)
    END;
    written CONSTANT text[] := array_remove(
        ARRAY[
            CASE WHEN (NEW.id <= last_id) IS NOT TRUE THEN 'id' END,
            CASE WHEN NEW.status <> 'provisioned' THEN 'status' END,
            CASE WHEN NEW.status_changed_at IS NOT NULL THEN 'status_changed_at' END,
            CASE WHEN NEW.activated_at IS NOT NULL THEN 'activated_at' END,
            CASE WHEN NEW.suspended_at IS NOT NULL THEN 'suspended_at' END,
            CASE WHEN NEW.unsuspended_at IS NOT NULL THEN 'unsuspended_at' END
        ],
        NULL
    );
    refused text;
BEGIN
    -- This decides about almost every row. A WHEN of the trigger costs more, because each statement reads it again.
    IF written = '{}' OR has_table_privilege(TG_RELID, 'INSERT') THEN
        RETURN NEW;
    END IF;
    refused := (
        SELECT string_agg(w.name, ', ')
        FROM unnest(written) w (name)
        WHERE NOT has_column_privilege(TG_RELID, w.name, 'INSERT')
    );
    IF refused IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'permission denied for columns of table accounts',
            DETAIL = format('"%s" may not write %s.', current_user, refused),
            HINT = 'Insert email and login only, or as a member of mailroom_admin. A default of the table that was replaced needs a grant too.';
    END IF;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_columns() IS
    'Internal. Refuses a new account with an id beyond its sequence, a status or times of its own from a role that may not INSERT these columns.';

-- Column grants do not suffice: see 85_columns.sql. created_at decides nothing. Triggers fire in the order of their
-- names, and this name comes before letters and digits: what triggers of the owner write is not the role's.
CREATE TRIGGER "!check_columns"
    BEFORE INSERT ON @extschema@.accounts
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._accounts_columns();

-- BEFORE, because unique keys and ON CONFLICT compare what is stored.
CREATE TRIGGER accounts_normalise
    BEFORE INSERT OR UPDATE ON @extschema@.accounts
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._accounts_normalise();
