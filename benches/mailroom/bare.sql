-- What an application has without mailroom: two tables of the same columns and types, and a trigger that gives each
-- account its token. No process is notified, and none consumes the tokens.
CREATE TYPE account_status AS ENUM ('provisioned', 'active', 'suspended');
CREATE TYPE token_action AS ENUM ('activation', 'password_recovery');

CREATE TABLE accounts (
    id bigserial PRIMARY KEY,
    email text NOT NULL UNIQUE,
    status account_status NOT NULL DEFAULT 'provisioned',
    login text NOT NULL UNIQUE,
    created_at bigint NOT NULL DEFAULT extract(epoch FROM now()),
    status_changed_at bigint,
    activated_at bigint,
    suspended_at bigint,
    unsuspended_at bigint
);

CREATE TABLE tokens (
    id bigserial PRIMARY KEY,
    action token_action NOT NULL,
    -- 32 bytes, random but for twelve bits, without an extension.
    secret bytea NOT NULL UNIQUE DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    code text NOT NULL DEFAULT lpad(floor(random() * 100000)::text, 5, '0'),
    account bigint NOT NULL REFERENCES accounts ON DELETE CASCADE,
    expires_at bigint NOT NULL DEFAULT extract(epoch FROM now()) + 86400,
    consumed_at bigint,
    created_at bigint NOT NULL DEFAULT extract(epoch FROM now()),
    revoked_at bigint,
    wrong_codes smallint NOT NULL DEFAULT 0
);
CREATE INDEX ON tokens (account);

CREATE FUNCTION issue_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tokens (action, account) VALUES ('activation', NEW.id);
    RETURN NULL;
END;
$$;
CREATE TRIGGER issue_token AFTER INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION issue_token();
