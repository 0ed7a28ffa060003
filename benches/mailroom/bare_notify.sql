-- bare.sql whose trigger tells of each token, as LISTEN and NOTIFY are meant to be used. Nobody listens.
CREATE OR REPLACE FUNCTION issue_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tokens (action, account) VALUES ('activation', NEW.id);
    NOTIFY token_insert;
    RETURN NULL;
END;
$$;
