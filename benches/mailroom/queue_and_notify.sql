-- The trigger on tokens with NOTIFY in every commit, whatever the extension does today.
CREATE OR REPLACE FUNCTION _tokens_enqueue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    INSERT INTO public.pending (lane, token)
    SELECT CASE action WHEN 'password_recovery' THEN 0 ELSE 1 END, id
    FROM new_tokens
    WHERE consumed_at IS NULL;
    IF FOUND THEN
        PERFORM pg_notify('token_insert', '');
    END IF;
    RETURN NULL;
END;
$$;
