-- Attach and detach: an application's own table gets accounts for its rows.
--
-- mailroom_attach creates the triggers of 20_attached.sql on the table and gives the rows that exist their accounts;
-- mailroom_detach drops the triggers and keeps the accounts. Both run with the caller's rights. Invariants: only the
-- owner of a table may attach it; after COMMIT every row with an address has an account, whatever was written meanwhile.

CREATE FUNCTION @extschema@._refuse_attachment(relation regclass, code text, reason text, remedy text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = code,
        MESSAGE = format('table %s cannot be attached', relation),
        DETAIL = reason,
        HINT = remedy;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_attachment(regclass, text, text, text) IS
    'Internal. Raises the error of a table that mailroom_attach does not take.';

CREATE FUNCTION @extschema@.mailroom_attach(
    relation regclass,
    email name,
    login name DEFAULT NULL,
    existing @extschema@.account_status DEFAULT 'active'
) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- Rows that a policy hides have addresses, too: better an error than half of the accounts.
    SET row_security = off
AS $$
DECLARE
    login_column CONSTANT name := coalesce(login, email);
    facts record;
    objection text;
    wanted name;
    address text;
    accounts bigint;
BEGIN
    -- Rows that were committed since its snapshot would get neither an account nor a trigger's call.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '0A000'::text,
            format('This transaction is %s and cannot see what was committed since it began.', upper(current_setting('transaction_isolation') COLLATE "C")),
            'BEGIN ISOLATION LEVEL READ COMMITTED.'::text
        );
    END IF;
    SELECT c.relkind, c.relpersistence, c.relispartition, pg_has_role(c.relowner, 'USAGE') AS is_owner
    INTO facts
    FROM pg_class c
    WHERE c.oid = relation;
    objection := CASE
        WHEN relation IS NULL OR facts.relkind IS NULL THEN 'There is no such table.'
        WHEN facts.relkind = 'p' OR facts.relispartition THEN 'It is partitioned, or a partition.'
        WHEN facts.relkind = 'f' THEN 'It is a foreign table.'
        WHEN facts.relkind <> 'r' THEN 'It is not a table.'
        WHEN facts.relpersistence = 't' THEN 'It is temporary.'
        WHEN facts.relpersistence = 'u' THEN 'It is unlogged: a crash would empty it and leave the accounts.'
        WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = relation OR i.inhparent = relation)
            THEN 'It inherits, or is inherited from.'
        WHEN EXISTS (
            SELECT
            FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass
              AND d.objid = relation
              AND d.refclassid = 'pg_extension'::regclass
              AND d.deptype = 'e'
        ) THEN 'It belongs to an extension.'
    END;
    IF objection IS NOT NULL THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '42809'::text, objection, 'Attach an ordinary table, every row of which is written to it directly.'::text
        );
    END IF;
    IF NOT facts.is_owner THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '42501'::text, 'It belongs to somebody else.'::text, 'Its owner, as a member of mailroom_admin, may.'::text
        );
    END IF;
    FOREACH wanted IN ARRAY ARRAY[email, login_column] LOOP
        SELECT NOT @extschema@._is_text(a.atttypid) AS is_other, a.attgenerated = 'v' AS is_virtual
        INTO facts
        FROM pg_attribute a
        WHERE a.attrelid = relation
          AND a.attname = wanted
          AND a.attnum > 0
          AND NOT a.attisdropped;
        IF NOT FOUND THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '42703'::text, format('It has no column "%s".', wanted), 'Name the columns with address and login.'::text
            );
        ELSIF facts.is_other THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '42804'::text, format('Column "%s" is not text.', wanted),
                'Use a column of type text, varchar or citext, or of a domain over one of these.'::text
            );
        ELSIF facts.is_virtual THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '0A000'::text, format('Column "%s" is computed when it is read, and no trigger sees it.', wanted),
                'Use a column that is stored.'::text
            );
        END IF;
    END LOOP;
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', relation);
    IF EXISTS (SELECT FROM @extschema@.mailroom_attached m WHERE m.relation = mailroom_attach.relation) THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '42710'::text, 'It is attached already.'::text, 'Use mailroom_detach first to name other columns.'::text
        );
    END IF;
    -- Of a table that was dropped, whose number may be another's now.
    DELETE FROM @extschema@.attached t
    WHERE t.relation = mailroom_attach.relation
       OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.relation);

    EXECUTE format('CREATE TRIGGER mailroom_insert AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_insert()';
    EXECUTE format('CREATE TRIGGER mailroom_email AFTER UPDATE ON %s FOR EACH ROW', relation)
        || format(' WHEN (OLD.%1$I IS DISTINCT FROM NEW.%1$I)', email)
        || ' EXECUTE FUNCTION @extschema@._attached_update()';
    EXECUTE format('CREATE TRIGGER mailroom_login AFTER UPDATE ON %s FOR EACH ROW', relation)
        || format(' WHEN (OLD.%1$I IS DISTINCT FROM NEW.%1$I)', login_column)
        || ' EXECUTE FUNCTION @extschema@._attached_update()';
    EXECUTE format('CREATE TRIGGER mailroom_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_delete()';
    EXECUTE format('CREATE TRIGGER mailroom_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_truncate()';

    EXECUTE 'SELECT a.email FROM @extschema@.accounts a JOIN ' || relation
        || ' r ON a.email = @extschema@._fold(' || format('r.%I::text COLLATE "default")', email)
        || ' JOIN @extschema@.attached t ON t.account_id = a.id LIMIT 1'
    INTO address;
    IF address IS NOT NULL THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '23505'::text, format('"%s" has an account already, which belongs to another table.', address),
            'An address has one account.'::text
        );
    END IF;
    EXECUTE 'INSERT INTO @extschema@.accounts (email, login, status) SELECT '
        || format('r.%1$I::text, coalesce(r.%2$I::text, r.%1$I::text), $1 FROM %3$s r WHERE r.%1$I IS NOT NULL', email, login_column, relation)
        || ' AND NOT EXISTS (SELECT FROM @extschema@.accounts a WHERE a.email = '
        || '@extschema@._fold(' || format('r.%I::text COLLATE "default"))', email)
    USING coalesce(existing, 'active'::@extschema@.account_status);
    EXECUTE 'INSERT INTO @extschema@.attached (account_id, relation, email) SELECT a.id, $1, a.email FROM @extschema@.accounts a WHERE a.email IN '
        || '(SELECT @extschema@._fold(' || format('r.%I::text COLLATE "default") FROM %s r)', email, relation)
    USING relation;
    GET DIAGNOSTICS accounts = ROW_COUNT;
    RETURN accounts;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_attach(regclass, name, name, @extschema@.account_status) IS
    'Gives every row of a table of yours an account: email and login (default: email) are its columns. From then on a new row gets an account, and its activation mail at COMMIT; a changed address or login, and a deleted row, are followed, also when rows swap theirs in a table with a deferrable unique key. An account whose address is edited stays with its row. A row without an address has none. Rows that are there get accounts with the status existing (default active, which mails nothing); accounts that have their addresses become theirs. Returns how many accounts the table has. Takes a SHARE ROW EXCLUSIVE lock on the table. Only the table''s owner, as a member of mailroom_admin. Errors: 42809 unless it is an ordinary table, 42501, 42703, 42804 for a column that is not text, 0A000 for one that is generated and not stored and in an isolation level above READ COMMITTED, 42710 when it is attached, 23505 for an address or login that another account has.';

CREATE FUNCTION @extschema@.mailroom_detach(relation regclass) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    attachment text;
    accounts bigint;
BEGIN
    FOR attachment IN
        SELECT t.tgname
        FROM pg_trigger t
        WHERE t.tgrelid = mailroom_detach.relation
          AND t.tgfoid IN (
              '@extschema@._attached_insert()'::regprocedure,
              '@extschema@._attached_update()'::regprocedure,
              '@extschema@._attached_delete()'::regprocedure,
              '@extschema@._attached_truncate()'::regprocedure
          )
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', attachment, relation);
    END LOOP;
    IF attachment IS NULL THEN
        RAISE undefined_object USING
            MESSAGE = format('table %s is not attached', relation),
            HINT = 'The tables that are, are in mailroom_attached.';
    END IF;
    DELETE FROM @extschema@.attached t WHERE t.relation = mailroom_detach.relation;
    GET DIAGNOSTICS accounts = ROW_COUNT;
    RETURN accounts;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_detach(regclass) IS
    'Ends mailroom_attach for a table: accounts and rows stay as they are, and go their own ways. Returns how many accounts it had. Only the table''s owner, as a member of mailroom_admin. Errors: 42704 when it is not attached, 42501.';
