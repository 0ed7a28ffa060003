-- Attached tables: how the rows of an application's own table keep their accounts.
--
-- The triggers that mailroom_attach (30_attach.sql) puts on a table are the attachment: PostgreSQL keeps the columns
-- that they name through renames, and pg_dump dumps them with the table, after its rows. They write accounts and the
-- table attached, which maps an account to the address of its row; the email of the account may have been edited since.
-- Invariants: a table reaches only the accounts of its own rows; its columns are read as text, so that no code of the
-- table's owner runs with the rights of the trigger functions.

CREATE TABLE @extschema@.attached (
    account_id bigint,
    relation regclass NOT NULL,
    email text NOT NULL,
    is_displaced boolean NOT NULL DEFAULT false,
    -- No foreign key: with one, TRUNCATE accounts, tokens would have to name this table too.
    CONSTRAINT attached_pkey PRIMARY KEY (account_id)
);
COMMENT ON TABLE @extschema@.attached IS
    'Accounts of the rows of attached tables, see mailroom_attach. Written by the triggers on these tables.';
COMMENT ON COLUMN @extschema@.attached.account_id IS 'accounts.id';
COMMENT ON COLUMN @extschema@.attached.relation IS 'The attached table.';
COMMENT ON COLUMN @extschema@.attached.email IS 'The key of the address in the row, see mailroom_address_key.';
COMMENT ON COLUMN @extschema@.attached.is_displaced IS
    'True while another row has got the address or login of this row in a statement that will give this row another one.';

CREATE INDEX attached_rows ON @extschema@.attached (relation, email);

CREATE FUNCTION @extschema@._accounts_forget() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM @extschema@.attached t USING old_accounts o WHERE t.account_id = o.id;
    ELSE
        DELETE FROM @extschema@.attached;
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_forget() IS
    'Internal. Deletes the rows of attached whose accounts are deleted.';

CREATE TRIGGER accounts_forget
    AFTER DELETE ON @extschema@.accounts
    REFERENCING OLD TABLE AS old_accounts
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._accounts_forget();

-- TRUNCATE ... RESTART IDENTITY would give their ids to other accounts.
CREATE TRIGGER accounts_forget_all
    AFTER TRUNCATE ON @extschema@.accounts
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._accounts_forget();

CREATE FUNCTION @extschema@._displace(relation oid, taker bigint, taken_email text, taken_login text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
<<local>>
DECLARE
    holders CONSTANT bigint[] := ARRAY(
        SELECT a.id
        FROM (
            SELECT e.id FROM @extschema@.accounts e WHERE e.email = _displace.taken_email
            UNION
            SELECT l.id FROM @extschema@.accounts l WHERE l.login = _displace.taken_login
        ) a
        CROSS JOIN LATERAL (
            SELECT
            FROM @extschema@.attached t
            WHERE t.account_id = a.id
              AND t.relation = _displace.relation
            OFFSET 0
        ) t
        WHERE a.id IS DISTINCT FROM taker
    );
BEGIN
    IF holders = '{}' THEN
        RETURN;
    END IF;
    -- Only if the table itself checks a unique key at the end of the statement or transaction can two rows swap their
    -- values.
    IF NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = _displace.relation AND i.indisunique AND NOT i.indimmediate) THEN
        RAISE unique_violation USING
            MESSAGE = format('two rows of table %s have the same address or login', _displace.relation::regclass),
            DETAIL = format('One of them is that of account %s.', holders[1]),
            HINT = 'Each address and each login belongs to one account. Rows can swap theirs only if the table has a deferrable unique key of its own.';
    END IF;
    UPDATE @extschema@.accounts a
    SET email = CASE WHEN a.email = _displace.taken_email THEN 'displaced-' || a.id || '@mailroom.invalid' ELSE a.email END,
        login = CASE WHEN a.login = _displace.taken_login THEN 'displaced ' || gen_random_uuid() ELSE a.login END
    WHERE a.id = ANY (local.holders);
    UPDATE @extschema@.attached t
    SET is_displaced = true
    WHERE t.account_id = ANY (local.holders);
END;
$$;
COMMENT ON FUNCTION @extschema@._displace(oid, bigint, text, text) IS
    'Internal. Takes an address and a login away from the accounts of other rows of a table with deferrable unique keys; the changes of those rows then set their new ones. Raises a unique violation for a table that has no such key.';

CREATE FUNCTION @extschema@._attached_settled() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM @extschema@.attached t WHERE t.account_id = NEW.account_id AND t.is_displaced) THEN
        RAISE unique_violation USING
            MESSAGE = format('two rows of table %s have the same address or login', NEW.relation),
            DETAIL = format('One of them is that of account %s.', NEW.account_id),
            HINT = 'Each address and each login belongs to one account.';
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._attached_settled() IS
    'Internal. Raises a unique violation if a row lost its address or login to another row and was not given a new one.';

CREATE CONSTRAINT TRIGGER attached_settled
    AFTER UPDATE ON @extschema@.attached
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW
    WHEN (NEW.is_displaced)
    EXECUTE FUNCTION @extschema@._attached_settled();

CREATE FUNCTION @extschema@._refuse_attached_twice(relation oid, address text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF address IS NOT NULL THEN
        RAISE unique_violation USING
            MESSAGE = format('two rows of %s cannot have the address "%s"', relation::regclass, address),
            DETAIL = 'The account of the other row has another address since it was edited.',
            HINT = 'Give the rows different addresses.',
            CONSTRAINT = 'accounts_email_key';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_attached_twice(oid, text) IS
    'Internal. Raises a unique violation unless the address is NULL: nothing would tell which account belongs to which row.';

CREATE FUNCTION @extschema@._warn_unfollowed(relation oid, cause text, remedy text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE WARNING USING
        MESSAGE = format('rows of table %s have no accounts that follow them', relation::regclass),
        DETAIL = cause,
        HINT = remedy;
END;
$$;
COMMENT ON FUNCTION @extschema@._warn_unfollowed(oid, text, text) IS
    'Internal. Warns that rows of an attached table were written which are not linked to accounts.';

-- Long because an address may come, go or change, and another row may have it.
CREATE FUNCTION @extschema@._attached_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    names record;
    former text;
    present text;
    present_login text;
    holder record;
    made bigint;
BEGIN
    SELECT c.* INTO names FROM @extschema@._attachment(TG_RELID) c;
    EXECUTE format(
        'SELECT nullif(($1).%1$I::text, ''''), nullif(($2).%1$I::text, ''''), coalesce(nullif(($2).%2$I::text, ''''), ($2).%1$I::text)',
        names.email, names.login
    )
    INTO former, present, present_login
    USING OLD, NEW;
    IF TG_NAME = 'mailroom_login' AND former IS DISTINCT FROM present THEN
        -- The trigger mailroom_email, which fires first, has updated both.
        RETURN NULL;
    END IF;
    -- Nothing tells two rows with the same address apart. Of two rows that swap, the displaced one had this address.
    SELECT t.account_id, t.is_displaced
    INTO holder
    FROM @extschema@.attached t
    WHERE t.relation = _attached_update.tg_relid
      AND t.email = @extschema@.mailroom_address_key(local.former)
    ORDER BY t.is_displaced DESC
    LIMIT 1;
    IF former IS DISTINCT FROM present THEN
        PERFORM @extschema@._refuse_attached_twice(TG_RELID, (
            SELECT t.email
            FROM @extschema@.attached t
            WHERE t.relation = _attached_update.tg_relid
              AND t.email = @extschema@.mailroom_address_key(local.present)
              AND t.account_id IS DISTINCT FROM holder.account_id
              AND NOT t.is_displaced
              -- Otherwise the account tells.
              AND NOT EXISTS (SELECT FROM @extschema@.accounts a WHERE a.id = t.account_id AND a.email = t.email)
            LIMIT 1
        ));
    END IF;
    IF former IS NULL AND present IS NOT NULL THEN
        PERFORM @extschema@._displace(TG_RELID, NULL::bigint, @extschema@.mailroom_address_key(present), @extschema@._fold(present_login));
        INSERT INTO @extschema@.accounts (email, login) VALUES (present, present_login) RETURNING id INTO made;
        INSERT INTO @extschema@.attached (account_id, relation, email) VALUES (made, TG_RELID::regclass, @extschema@.mailroom_address_key(present));
    ELSIF former IS NOT NULL AND holder.account_id IS NULL THEN
        PERFORM @extschema@._warn_unfollowed(
            TG_RELID, 'The account of a changed row was deleted, or the row was changed before by an AFTER trigger or without triggers.'::text,
            'If there is an account with a former address, correct it; then call mailroom_detach and mailroom_attach.'::text
        );
    ELSIF present IS NULL THEN
        DELETE FROM @extschema@.accounts a WHERE a.id = holder.account_id;
    ELSE
        PERFORM @extschema@._displace(
            TG_RELID, holder.account_id,
            -- If only the login changes, the address of the account stays, which may have been edited.
            CASE WHEN holder.is_displaced OR former IS DISTINCT FROM present THEN @extschema@.mailroom_address_key(present) END,
            @extschema@._fold(present_login)
        );
        UPDATE @extschema@.accounts a
        SET email = CASE WHEN holder.is_displaced OR local.former IS DISTINCT FROM local.present THEN local.present ELSE a.email END,
            login = local.present_login
        WHERE a.id = holder.account_id;
        UPDATE @extschema@.attached t
        SET email = @extschema@.mailroom_address_key(local.present),
            is_displaced = false
        WHERE t.account_id = holder.account_id;
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._attached_update() IS
    'Internal. Copies address and login of an attached table''s row to its account; creates or deletes the account when an address appears or disappears.';

-- The columns are those that the conditions of the triggers use. The names of the triggers are part of the attachment:
-- a table that has one of them under another name is not attached.
CREATE VIEW @extschema@.mailroom_attached AS
SELECT
    e.tgrelid::regclass AS relation,
    (
        SELECT a.attname
        FROM pg_depend d
        JOIN pg_attribute a ON a.attrelid = e.tgrelid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_trigger'::regclass
          AND d.objid = e.oid
          AND d.refclassid = 'pg_class'::regclass
          AND d.refobjid = e.tgrelid
          AND d.refobjsubid > 0
    ) AS email,
    (
        SELECT a.attname
        FROM pg_depend d
        JOIN pg_attribute a ON a.attrelid = e.tgrelid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_trigger'::regclass
          AND d.objid = l.oid
          AND d.refclassid = 'pg_class'::regclass
          AND d.refobjid = e.tgrelid
          AND d.refobjsubid > 0
    ) AS login
FROM pg_trigger e
JOIN pg_trigger l ON l.tgrelid = e.tgrelid AND l.tgname = 'mailroom_login' AND l.tgfoid = e.tgfoid
WHERE e.tgname = 'mailroom_email'
  AND e.tgfoid = '@extschema@._attached_update()'::regprocedure;
COMMENT ON VIEW @extschema@.mailroom_attached IS 'The attached tables, with their columns for address and login.';

CREATE FUNCTION @extschema@._is_text(type_id oid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base oid := type_id;
    next oid;
BEGIN
    LOOP
        SELECT t.typbasetype INTO next FROM pg_type t WHERE t.oid = base AND t.typtype = 'd';
        EXIT WHEN NOT FOUND;
        base := next;
    END LOOP;
    -- A type that is binary-coercible to text needs no function for the cast; only a superuser can declare that of a
    -- type.
    RETURN base = 'text'::regtype OR EXISTS (
        SELECT
        FROM pg_cast c
        WHERE c.castsource = base
          AND c.casttarget = 'text'::regtype
          AND c.castmethod = 'b'
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._is_text(oid) IS
    'Internal. Whether a type is text, varchar, citext or a domain over one of these.';

CREATE FUNCTION @extschema@._attachment(relation oid, OUT email name, OUT login name)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT m.email, m.login INTO email, login FROM @extschema@.mailroom_attached m WHERE m.relation = _attachment.relation;
    IF email IS NULL OR login IS NULL OR EXISTS (
        SELECT
        FROM pg_attribute a
        WHERE a.attrelid = _attachment.relation
          AND a.attname IN (email, login)
          AND NOT @extschema@._is_text(a.atttypid)
    ) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('table %s is not attached', relation::regclass),
            DETAIL = 'The table has some of the triggers of mailroom_attach, but not all as they were created.',
            HINT = 'As its owner, drop the remaining triggers by mailroom_detach, or call mailroom_attach.';
    END IF;
    IF EXISTS (
        SELECT FROM pg_inherits i WHERE i.inhrelid = _attachment.relation OR i.inhparent = _attachment.relation
    ) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('attached table %s cannot be written to', relation::regclass),
            DETAIL = 'It became a partition, or it inherits or is inherited from; rows that are written through the other table would get no accounts.',
            HINT = 'End that, or detach the table by mailroom_detach.';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._attachment(oid) IS
    'Internal. The columns of an attached table; raises an error if it is not attached, or is part of an inheritance hierarchy.';

CREATE FUNCTION @extschema@._attached_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    names record;
    restored boolean;
    twice text;
BEGIN
    SELECT c.* INTO names FROM @extschema@._attachment(TG_RELID) c;
    IF @extschema@._is_restoring() THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM new_rows n WHERE nullif(n.%I::text, '''') IS NOT NULL)', names.email) INTO restored;
        IF restored THEN
            PERFORM @extschema@._warn_unfollowed(
                TG_RELID, 'They were inserted as a dump is restored, which has the accounts itself.'::text,
                'If this dump has not, call mailroom_detach and mailroom_attach for the table afterwards.'::text
            );
        END IF;
        RETURN NULL;
    END IF;
    EXECUTE 'WITH made AS (INSERT INTO @extschema@.accounts (email, login) SELECT '
        || format(
            'n.%1$I::text, coalesce(nullif(n.%2$I::text, ''''), n.%1$I::text) FROM new_rows n WHERE nullif(n.%1$I::text, '''') IS NOT NULL',
            names.email, names.login
        )
        || ' RETURNING id, email) INSERT INTO @extschema@.attached (account_id, relation, email) SELECT m.id, $1, m.email FROM made m'
    USING TG_RELID::regclass;
    -- A new statement: a row that another transaction deleted while an account was waited for is gone from its snapshot.
    EXECUTE 'SELECT t.email FROM @extschema@.attached t WHERE t.relation = $1 AND NOT t.is_displaced AND t.email IN '
        || '(SELECT @extschema@.mailroom_address_key(' || format('n.%I::text COLLATE "default") FROM new_rows n)', names.email)
        || ' GROUP BY t.email HAVING count(*) > 1 LIMIT 1'
    INTO twice
    USING TG_RELID::regclass;
    PERFORM @extschema@._refuse_attached_twice(TG_RELID, twice);
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._attached_insert() IS
    'Internal. Creates accounts for new rows of an attached table that have an address.';

CREATE FUNCTION @extschema@._attached_delete() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    names record;
BEGIN
    SELECT c.* INTO names FROM @extschema@._attachment(TG_RELID) c;
    -- Of two rows with the same address, the displaced one goes first, as in _attached_update: one account for each row
    -- that is deleted.
    EXECUTE 'DELETE FROM @extschema@.accounts a USING (SELECT t.account_id, g.deleted,'
        || ' row_number() OVER (PARTITION BY t.email ORDER BY t.is_displaced DESC) AS place FROM ('
        || 'SELECT @extschema@.mailroom_address_key(' || format('o.%I::text COLLATE "default") AS email, count(*) AS deleted FROM old_rows o GROUP BY 1', names.email)
        || ') g JOIN @extschema@.attached t ON t.relation = $1 AND t.email = g.email'
        || ') h WHERE a.id = h.account_id AND h.place <= h.deleted'
    USING TG_RELID::regclass;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._attached_delete() IS
    'Internal. Deletes the accounts of deleted rows of an attached table.';

CREATE FUNCTION @extschema@._attached_truncate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.accounts a
    USING @extschema@.attached t
    WHERE t.account_id = a.id
      AND t.relation = _attached_truncate.tg_relid;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._attached_truncate() IS 'Internal. Deletes the accounts of a truncated attached table.';
