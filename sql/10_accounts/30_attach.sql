-- Attach and detach: an application's own table gets accounts for its rows.
--
-- mailroom_attach creates the triggers of 20_attached.sql on the table and gives the rows that exist their accounts;
-- mailroom_detach drops the triggers and keeps the accounts. Both run with the caller's rights. Invariants: only the
-- owner of a table may attach it; after COMMIT every row with an address has an account, also rows of concurrent
-- writers.

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
    'Internal. Raises the error for a table that mailroom_attach does not accept.';

-- Long because each check has its own error.
CREATE FUNCTION @extschema@._check_attachable(relation regclass, columns name[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    facts record;
    objection text;
    wanted name;
BEGIN
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
            relation, '42809'::text, objection, 'Attach an ordinary table that is written to directly.'::text
        );
    END IF;
    IF NOT facts.is_owner THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '42501'::text, 'Another role owns it.'::text, 'Call it as the owner of the table and a member of mailroom_admin.'::text
        );
    END IF;
    FOREACH wanted IN ARRAY columns LOOP
        SELECT NOT @extschema@._is_text(a.atttypid) AS is_other, a.attgenerated = 'v' AS is_virtual
        INTO facts
        FROM pg_attribute a
        WHERE a.attrelid = relation
          AND a.attname = wanted
          AND a.attnum > 0
          AND NOT a.attisdropped;
        IF NOT FOUND THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '42703'::text, format('It has no column "%s".', wanted), 'Name its columns with the arguments email and login.'::text
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
END;
$$;
COMMENT ON FUNCTION @extschema@._check_attachable(regclass, name[]) IS
    'Internal. Raises an error unless the caller owns this table and may attach it with these columns.';

CREATE FUNCTION @extschema@._is_locked_here(relation regclass) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT
        FROM pg_locks l
        WHERE l.locktype = 'relation'
          AND l.pid = pg_backend_pid()
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.relation = _is_locked_here.relation
          AND l.mode = 'ShareRowExclusiveLock'
          AND l.granted
    )
$$;
COMMENT ON FUNCTION @extschema@._is_locked_here(regclass) IS
    'Internal. Whether this transaction holds a SHARE ROW EXCLUSIVE lock on this table.';

-- Long because it creates the triggers and the accounts of the rows that are there under one lock.
CREATE FUNCTION @extschema@.mailroom_attach(
    relation regclass,
    email name,
    login name DEFAULT NULL,
    existing @extschema@.account_status DEFAULT 'active'
) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    login_column CONSTANT name := coalesce(login, email);
    address text;
    accounts bigint;
BEGIN
    -- Rows that were committed after the snapshot would get neither an account nor a call of the trigger.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '0A000'::text,
            format('This transaction is %s and cannot see rows that were committed after it began.', upper(current_setting('transaction_isolation') COLLATE "C")),
            'Use BEGIN ISOLATION LEVEL READ COMMITTED.'::text
        );
    END IF;
    PERFORM @extschema@._check_attachable(relation, ARRAY[email, login_column]);
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', relation);
    -- Until it was locked, the table could be altered, or another one could take its name. The statements below run
    -- with the caller's rights, perhaps a superuser's, and must call no code of other roles.
    IF NOT @extschema@._is_locked_here(relation) THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '55006'::text, 'It was renamed or dropped meanwhile.'::text, 'Try again.'::text
        );
    END IF;
    -- The lock keeps the table in its schema and under its name, but the schema could be renamed. Only superusers may lock
    -- a row of a catalog.
    IF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        PERFORM FROM pg_namespace n WHERE n.oid = (SELECT c.relnamespace FROM pg_class c WHERE c.oid = relation) FOR KEY SHARE;
    END IF;
    PERFORM @extschema@._check_attachable(relation, ARRAY[email, login_column]);
    IF row_security_active(relation) THEN
        -- Rows that a policy hides have addresses too.
        PERFORM @extschema@._refuse_attachment(
            relation, '42501'::text, 'Its policies may hide rows from the caller.'::text,
            'Call it as a role that they do not apply to: the owner, without FORCE ROW LEVEL SECURITY, or one with BYPASSRLS.'::text
        );
    END IF;
    IF EXISTS (SELECT FROM @extschema@.mailroom_attached m WHERE m.relation = mailroom_attach.relation) THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '42710'::text, 'It is attached already.'::text, 'Use mailroom_detach first to name other columns.'::text
        );
    END IF;
    -- The table may have been dropped, and its OID may have been reused since.
    DELETE FROM @extschema@.attached t
    WHERE t.relation = mailroom_attach.relation
       OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.relation);

    EXECUTE format('CREATE TRIGGER mailroom_insert AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_insert()';
    -- As text, byte by byte: for the collation of a column, different addresses may be equal.
    EXECUTE format('CREATE TRIGGER mailroom_email AFTER UPDATE ON %s FOR EACH ROW', relation)
        || format(' WHEN (OLD.%1$I::text COLLATE "C" IS DISTINCT FROM NEW.%1$I::text COLLATE "C")', email)
        || ' EXECUTE FUNCTION @extschema@._attached_update()';
    EXECUTE format('CREATE TRIGGER mailroom_login AFTER UPDATE ON %s FOR EACH ROW', relation)
        || format(' WHEN (OLD.%1$I::text COLLATE "C" IS DISTINCT FROM NEW.%1$I::text COLLATE "C")', login_column)
        || ' EXECUTE FUNCTION @extschema@._attached_update()';
    EXECUTE format('CREATE TRIGGER mailroom_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_delete()';
    EXECUTE format('CREATE TRIGGER mailroom_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_truncate()';

    EXECUTE 'SELECT a.email FROM @extschema@.accounts a JOIN ' || relation
        || ' r ON a.email = @extschema@.mailroom_address_key(' || format('r.%I::text COLLATE "default")', email)
        || ' JOIN @extschema@.attached t ON t.account_id = a.id LIMIT 1'
    INTO address;
    IF address IS NOT NULL THEN
        PERFORM @extschema@._refuse_attachment(
            relation, '23505'::text, format('The account of "%s" belongs to another table.', address),
            'Each address belongs to one account.'::text
        );
    END IF;
    EXECUTE 'INSERT INTO @extschema@.accounts (email, login, status) SELECT '
        || format(
            'r.%1$I::text, coalesce(nullif(r.%2$I::text, ''''), r.%1$I::text), $1 FROM %3$s r WHERE nullif(r.%1$I::text, '''') IS NOT NULL',
            email, login_column, relation
        )
        || ' AND NOT EXISTS (SELECT FROM @extschema@.accounts a WHERE a.email = '
        || '@extschema@.mailroom_address_key(' || format('r.%I::text COLLATE "default"))', email)
    USING coalesce(existing, 'active'::@extschema@.account_status);
    EXECUTE 'INSERT INTO @extschema@.attached (account_id, relation, email) SELECT a.id, $1, a.email FROM @extschema@.accounts a WHERE a.email IN '
        || '(SELECT @extschema@.mailroom_address_key(' || format('r.%I::text COLLATE "default") FROM %s r)', email, relation)
    USING relation;
    GET DIAGNOSTICS accounts = ROW_COUNT;
    RETURN accounts;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_attach(regclass, name, name, @extschema@.account_status) IS
    'Gives each row of an existing table an account, now and from then on: new rows, changed addresses and logins, and deleted rows are followed by triggers. Returns the number of accounts that the table has.';

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
            DETAIL = 'It has no trigger of mailroom.',
            HINT = 'Attached tables are listed in mailroom_attached.';
    END IF;
    DELETE FROM @extschema@.attached t WHERE t.relation = mailroom_detach.relation;
    GET DIAGNOSTICS accounts = ROW_COUNT;
    RETURN accounts;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_detach(regclass) IS
    'Ends the attachment of a table and keeps its accounts. Returns the number of accounts that it had.';
