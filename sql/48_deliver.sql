-- Delivery by the worker itself: nothing that a client could not do with mailroom_claim and the settles.
--
-- The worker claims as 'mailroom worker/', the server's timeline and its session. There is one a database, so whatever one
-- of that timeline still holds when it begins was left by a process that is gone. What one of another timeline holds may
-- still be sent by the server that was left behind: its lease is waited for.

CREATE FUNCTION @extschema@._take_over(timeline text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    mine CONSTANT text := 'mailroom worker/' || timeline || '/';
    orphans integer;
BEGIN
    DELETE FROM @extschema@.transports t WHERE starts_with(t.deliverer, mine);
    UPDATE @extschema@.outbox o
    SET claimed_until = clock_timestamp()
    WHERE o.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM @extschema@.outbox c
        WHERE c.state = 'claimed'
          AND c.claimed_until > clock_timestamp()
          AND starts_with(c.claimed_by, mine)
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS orphans = ROW_COUNT;
    RETURN orphans;
END;
$$;
COMMENT ON FUNCTION @extschema@._take_over(text) IS
    'Internal. Lets the claims of earlier workers of this database and timeline (hexadecimal) lapse at once, and withdraws their transports; returns how many claims there were.';
