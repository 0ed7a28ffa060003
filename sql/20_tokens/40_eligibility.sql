-- Eligibility: whether a token may be handed out and redeemed now, apart from a lock by wrong codes, which redeeming and
-- requests check by themselves.
--
-- The one place that decides it. Hand-out (30_pending/), claims and retries (50_queue/), and links (60_redeem.sql) ask
-- the two views; nothing here writes. Invariant: a function that needs accounts and tokens locks them by _lock_accounts_and_tokens
-- first, in the order of the view's tables.

CREATE FUNCTION @extschema@._status_for(action @extschema@.token_action) RETURNS @extschema@.account_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE action
    WHEN 'activation' THEN 'provisioned'::@extschema@.account_status
    ELSE 'active'::@extschema@.account_status
END;
COMMENT ON FUNCTION @extschema@._status_for(@extschema@.token_action) IS
    'Internal. The status that an account must have to get or redeem a token for this action.';

CREATE TYPE @extschema@._verdict AS ENUM
    ('eligible', 'consumed', 'token_expired', 'account_not_eligible', 'revoked', 'malformed_secret', 'malformed_code', 'malformed_email');
COMMENT ON TYPE @extschema@._verdict IS 'Internal. Whether a token may be handed out and redeemed, and if not, why.';

-- What would happen to a token if it were handed out or redeemed now. _lock_accounts_and_tokens locks its tables in the order in
-- which they are named here.
CREATE VIEW @extschema@._token_verdicts AS
SELECT
    t.id AS token_id,
    t.action,
    t.secret,
    t.code,
    -- Five guesses of 100,000 codes.
    t.wrong_codes >= 5 AS locked,
    t.account AS account_id,
    a.email,
    a.login,
    e.expires_at,
    v.verdict,
    v.verdict = 'eligible' AS eligible,
    CASE v.verdict
        WHEN 'eligible' THEN NULL
        WHEN 'token_expired' THEN 'expired'::@extschema@.outbox_state
        WHEN 'malformed_secret' THEN 'error'
        WHEN 'malformed_code' THEN 'error'
        WHEN 'malformed_email' THEN 'error'
        ELSE 'cancelled'
    END AS final,
    CASE v.verdict
        WHEN 'consumed' THEN 'token was consumed before it was handed out'
        WHEN 'token_expired' THEN 'token expired before it was handed out'
        WHEN 'account_not_eligible' THEN 'account is ' || a.status::text
        WHEN 'revoked' THEN 'token was revoked before it was handed out'
        WHEN 'malformed_secret' THEN 'secret is not 32 bytes'
        WHEN 'malformed_code' THEN 'code is not five digits'
        WHEN 'malformed_email' THEN 'email of the account is not an address'
    END AS reason
FROM @extschema@.accounts a
-- t.account = a.id could be joined in the order of either column, too, from one end of its index to the other. A session
-- that plans while the tables are all but empty would go on to do that when they are large.
JOIN @extschema@.tokens t ON a.id = ANY (ARRAY[t.account])
-- A token may never expire; the calendar ends here with the year 9999.
CROSS JOIN LATERAL (SELECT to_timestamp(least(greatest(t.expires_at, 0), 253402300799)) AS expires_at) e
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN t.consumed_at IS NOT NULL THEN 'consumed'::@extschema@._verdict
        WHEN e.expires_at <= clock_timestamp() THEN 'token_expired'
        WHEN a.status <> @extschema@._status_for(t.action) THEN 'account_not_eligible'
        WHEN t.revoked_at IS NOT NULL THEN 'revoked'
        WHEN octet_length(t.secret) <> 32 THEN 'malformed_secret'
        -- This runs for every token; a regular expression would take ten times as long.
        WHEN octet_length(t.code) <> 5 OR translate(t.code, '0123456789', '') <> '' THEN 'malformed_code'
        -- Written past the trigger, or before it knew a rule of today. Other senders may read such text as another address.
        WHEN NOT @extschema@._is_address(a.email) THEN 'malformed_email'
        ELSE 'eligible'
    END AS verdict
) v;
COMMENT ON VIEW @extschema@._token_verdicts IS
    'Internal. Each token with the columns that its mail needs, whether it may be handed out and redeemed, and if not, how its mail ends and why.';

-- For senders, which read no secrets of tokens.
CREATE VIEW @extschema@._token_ends AS
SELECT v.token_id, v.eligible, v.locked, v.final, v.reason
FROM @extschema@._token_verdicts v;
COMMENT ON VIEW @extschema@._token_ends IS
    'Internal. Whether the mail of a token may be sent, and if not, how it ends and why; and whether the token is locked by wrong codes.';

CREATE FUNCTION @extschema@._lock_accounts_and_tokens(waiting boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF waiting THEN
        LOCK TABLE @extschema@._token_ends IN ACCESS SHARE MODE;
        RETURN true;
    END IF;
    BEGIN
        LOCK TABLE @extschema@._token_ends IN ACCESS SHARE MODE NOWAIT;
        RETURN true;
    EXCEPTION
        WHEN lock_not_available THEN
            RETURN false;
    END;
END;
$$;
COMMENT ON FUNCTION @extschema@._lock_accounts_and_tokens(boolean) IS
    'Internal. Locks accounts and tokens, in this order, in ACCESS SHARE mode until the transaction ends; if waiting is false, returns false instead of waiting. A caller that has locked rows of link_requests, pending or outbox must not wait: TRUNCATE locks the tables in the opposite order.';
