-- When the outbox wants attention: messages that become due, and who hears of it.
--
-- Whoever makes a message that is to be sent, or puts one back, calls _mail_due with its time; whoever claims
-- one calls it with the end of the lease. With a worker that costs no lock: the worker hears of it at COMMIT,
-- sleeps until the earliest of these times, and tells outside senders on the writers' behalf. Without one the
-- transaction NOTIFYs, and a sender asks mailroom_next_due how long to wait.

CREATE FUNCTION @extschema@._mail_due(due timestamptz) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF @extschema@._announce_due(due) THEN
        PERFORM pg_notify(@extschema@._outbox_channel(), '');
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._mail_due(timestamptz) IS
    'Internal. Has the worker, or whoever listens on mailroom.outbox_channel, told at COMMIT that a message becomes due, or a claim lapses, at this time. NULL for nothing.';

-- Rows that were made for later, or put off. Mail that is due when it is made, which is most, never enters
-- this index, and a search from now on steps over nothing that was taken.
CREATE INDEX outbox_timer ON @extschema@.outbox (send_at) WHERE state = 'scheduled' AND send_at > created_at;

CREATE FUNCTION @extschema@.mailroom_next_due() RETURNS timestamptz
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
    SELECT least(
        (
            SELECT o.send_at
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.send_at > o.created_at
              AND o.send_at > clock_timestamp()
            ORDER BY o.send_at
            LIMIT 1
        ),
        (
            SELECT o.claimed_until
            FROM @extschema@.outbox o
            WHERE o.state = 'claimed'
              AND o.claimed_until > clock_timestamp()
            ORDER BY o.claimed_until
            LIMIT 1
        )
    )
$$;
COMMENT ON FUNCTION @extschema@.mailroom_next_due() IS
    'When the next message becomes due or the next claim lapses, from now on; NULL for never. A sender that found nothing to claim waits until then, or until a notification on mailroom.outbox_channel.';
