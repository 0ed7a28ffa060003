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
CREATE FUNCTION @extschema@._check_attachable(relation regclass, columns name[], active name) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    facts record;
    objection text;
    wanted record;
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
    FOR wanted IN
        SELECT c.name, false AS is_flag FROM unnest(columns) c (name)
        UNION ALL
        SELECT active, true WHERE active IS NOT NULL
    LOOP
        SELECT
            CASE
                WHEN wanted.is_flag THEN a.atttypid <> 'boolean'::regtype
                ELSE NOT @extschema@._is_text(a.atttypid)
            END AS is_other,
            a.attgenerated = 'v' AS is_virtual
        INTO facts
        FROM pg_attribute a
        WHERE a.attrelid = relation
          AND a.attname = wanted.name
          AND a.attnum > 0
          AND NOT a.attisdropped;
        IF NOT FOUND THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '42703'::text, format('It has no column "%s".', wanted.name),
                'Name its columns with the arguments email, login and active.'::text
            );
        ELSIF facts.is_other AND wanted.is_flag THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '42804'::text, format('Column "%s" is not boolean.', wanted.name),
                'Use a column of type boolean, which may be generated and stored: GENERATED ALWAYS AS (deleted_at IS NULL) STORED.'::text
            );
        ELSIF facts.is_other THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '42804'::text, format('Column "%s" is not text.', wanted.name),
                'Use a column of type text, varchar or citext, or of a domain over one of these.'::text
            );
        ELSIF facts.is_virtual THEN
            PERFORM @extschema@._refuse_attachment(
                relation, '0A000'::text, format('Column "%s" is computed when it is read, and no trigger sees it.', wanted.name),
                'Use a column that is stored.'::text
            );
        END IF;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._check_attachable(regclass, name[], name) IS
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

CREATE FUNCTION @extschema@._shown(value text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN length(s.line) > 64 THEN left(s.line, 64) || '...' ELSE s.line END
    FROM (SELECT @extschema@._visible($1)) s (line)
$$;
COMMENT ON FUNCTION @extschema@._shown(text) IS 'Internal. A value as an error quotes it: on one line, and shortened.';

CREATE FUNCTION @extschema@._row_name(relation regclass) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    -- By concat_ws, which calls output functions, as only superusers define them: a cast may call code of other roles.
    SELECT coalesce(
        (
            SELECT format(
                '%L || concat_ws('', '', %s) || '')''',
                '(' || string_agg(a.attname::text, ', ' ORDER BY k.place) || ')=(',
                string_agg(format('r.%I', a.attname), ', ' ORDER BY k.place)
            )
            FROM pg_index i
            CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY k (attnum, place)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
            WHERE i.indrelid = $1
              AND i.indisprimary
              AND k.place <= i.indnkeyatts
            HAVING count(*) > 0
        ),
        'NULL::text'
    )
$$;
COMMENT ON FUNCTION @extschema@._row_name(regclass) IS
    'Internal. An expression for the primary key of a row r of this table, as an error shows it; NULL::text if there is none.';

-- Long because it is one statement for the rows of a table.
CREATE FUNCTION @extschema@._refuse_rows(relation regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    refused bigint;
    is_bad boolean;
    listed text;
BEGIN
    EXECUTE 'WITH given AS (SELECT r.ctid AS place, ' || @extschema@._row_name(relation) || ' AS name, '
        || @extschema@._attachment(relation::oid) || format(' FROM %s r), ', relation)
        || $sql$
        folded AS (
            SELECT g.place, g.name, coalesce(@extschema@.mailroom_address_key(g.address), g.address) AS email, @extschema@._fold(g.login) AS login
            FROM given g
            WHERE g.address IS NOT NULL
        ),
        -- A row whose address has an account does not change its login.
        counted AS (
            SELECT f.place, f.name, f.email, f.login,
                a.id IS NULL AS is_new,
                EXISTS (SELECT FROM @extschema@.attached t WHERE t.account_id = a.id) AS is_attached,
                count(*) OVER (PARTITION BY f.email) AS with_email,
                count(*) FILTER (WHERE a.id IS NULL) OVER (PARTITION BY f.login) AS with_login
            FROM folded f
            LEFT JOIN @extschema@.accounts a ON a.email = f.email
        ),
        judged AS (
            SELECT c.place, p.detail IS NOT NULL AS is_bad, coalesce(@extschema@._shown(c.name) || ': ', '') || CASE
                WHEN p.detail IS NOT NULL THEN rtrim(p.detail, '.')
                WHEN c.is_attached THEN format('the account of "%s" belongs to another table', c.email)
                WHEN c.with_email > 1 THEN format('%s rows have the email "%s"', c.with_email, c.email)
                WHEN c.is_new AND c.with_login > 1 AND c.login IS NOT NULL
                    THEN format('%s rows have the login "%s"', c.with_login, c.login)
                WHEN c.is_new AND EXISTS (SELECT FROM @extschema@.accounts a WHERE a.login = c.login)
                    THEN format('the login "%s" belongs to another account', c.login)
            END AS objection
            FROM counted c
            -- No problem of an address that an account has, and no login is no problem.
            LEFT JOIN LATERAL @extschema@._account_problem(c.email, coalesce(c.login, '-')) p ON c.is_new
        ),
        numbered AS (
            SELECT j.is_bad, j.objection, row_number() OVER (ORDER BY j.place) AS number
            FROM judged j
            WHERE j.objection IS NOT NULL
        )
        SELECT count(*) AS rows, bool_or(n.is_bad) AS is_bad,
            string_agg(n.objection, chr(10) ORDER BY n.number) FILTER (WHERE n.number <= 10) AS listed
        FROM numbered n
        $sql$
    INTO refused, is_bad, listed;
    IF refused > 0 THEN
        PERFORM @extschema@._refuse_attachment(
            relation,
            CASE WHEN is_bad THEN '23514'::text ELSE '23505'::text END,
            format(E'Rows that cannot have an account: %s\n%s', refused, listed)
                || CASE WHEN refused > 10 THEN format(E'\nand %s more', refused - 10) ELSE '' END,
            'Correct these rows, or give them no account by a column that is named by the argument active.'::text
        );
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_rows(regclass) IS
    'Internal. Raises an error that names the rows of a table that cannot have an account: those that break a rule, or have an address or login of another row, account or table.';

-- Long because it creates the triggers and the accounts of the rows that are there under one lock.
CREATE FUNCTION @extschema@.mailroom_attach(
    relation regclass,
    email name,
    login name DEFAULT NULL,
    existing @extschema@.account_status DEFAULT 'active',
    active name DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    login_column CONSTANT name := coalesce(login, email);
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
    PERFORM @extschema@._check_attachable(relation, ARRAY[email, login_column], active);
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
    PERFORM @extschema@._check_attachable(relation, ARRAY[email, login_column], active);
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
    IF active IS NOT NULL THEN
        EXECUTE format('CREATE TRIGGER mailroom_active AFTER UPDATE ON %s FOR EACH ROW', relation)
            || format(' WHEN (OLD.%1$I IS DISTINCT FROM NEW.%1$I)', active)
            || ' EXECUTE FUNCTION @extschema@._attached_update()';
    END IF;
    EXECUTE format('CREATE TRIGGER mailroom_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_delete()';
    EXECUTE format('CREATE TRIGGER mailroom_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT', relation)
        || ' EXECUTE FUNCTION @extschema@._attached_truncate()';

    PERFORM @extschema@._refuse_rows(relation);
    EXECUTE 'INSERT INTO @extschema@.accounts (email, login, status)'
        || ' SELECT n.address, coalesce(n.login, @extschema@._placeholder_login()), $1 FROM ' || format('(SELECT %s FROM %s r) n', @extschema@._attachment(relation::oid), relation)
        || ' WHERE n.address IS NOT NULL'
        || ' AND NOT EXISTS (SELECT FROM @extschema@.accounts a WHERE a.email = @extschema@.mailroom_address_key(n.address))'
    USING coalesce(existing, 'active'::@extschema@.account_status);
    EXECUTE 'INSERT INTO @extschema@.attached (account_id, relation, email) SELECT a.id, $1, a.email FROM @extschema@.accounts a'
        || ' WHERE a.email IN (SELECT @extschema@.mailroom_address_key(n.address) FROM ' || format('(SELECT %s FROM %s r) n', @extschema@._attachment(relation::oid), relation) || ')'
    USING relation;
    GET DIAGNOSTICS accounts = ROW_COUNT;
    RETURN accounts;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_attach(regclass, name, name, @extschema@.account_status, name) IS
    'Gives each row of an existing table an account, now and from then on: new, changed and deleted rows are followed by triggers. Returns the number of accounts that the table has.';

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
