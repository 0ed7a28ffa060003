-- bare.sql with a trigger that notifies of each token. No session listens.
CREATE OR REPLACE FUNCTION issue_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tokens (action, account) VALUES ('activation', NEW.id);
    NOTIFY token_insert;
    RETURN NULL;
END;
$$;
