-- The attachment of a table: its triggers, and what they tell about its columns.
--
-- Invariants: the columns are those that the conditions of the triggers use, so they follow renames; they are read as
-- text or as boolean, so that no code of the table's owner runs with the rights of the trigger functions.

-- The names of the triggers are part of the attachment: a table that has one of them under another name is not attached.
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
    ) AS login,
    (
        SELECT a.attname
        FROM pg_depend d
        JOIN pg_attribute a ON a.attrelid = e.tgrelid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_trigger'::regclass
          AND d.objid = s.oid
          AND d.refclassid = 'pg_class'::regclass
          AND d.refobjid = e.tgrelid
          AND d.refobjsubid > 0
    ) AS active
FROM pg_trigger e
JOIN pg_trigger l ON l.tgrelid = e.tgrelid AND l.tgname = 'mailroom_login' AND l.tgfoid = e.tgfoid
LEFT JOIN pg_trigger s ON s.tgrelid = e.tgrelid AND s.tgname = 'mailroom_active' AND s.tgfoid = e.tgfoid
WHERE e.tgname = 'mailroom_email'
  AND e.tgfoid = '@extschema@._attached_update()'::regprocedure;
COMMENT ON VIEW @extschema@.mailroom_attached IS
    'The attached tables, with their columns for address and login, and the one that tells which rows are active.';

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

CREATE FUNCTION @extschema@._placeholder_login() RETURNS text
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    -- Random, so that no person can have registered it before.
    SELECT 'unnamed ' || gen_random_uuid()
$$;
COMMENT ON FUNCTION @extschema@._placeholder_login() IS
    'Internal. The login of an account whose row has none: it neither takes a login from a person nor can be taken by one.';

CREATE FUNCTION @extschema@._row_values(email name, login name, active name) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address text := format('nullif(r.%I::text COLLATE "default", '''')', email);
    own_login text := format('nullif(r.%I::text COLLATE "default", '''')', login);
    is_active text := 'true';
BEGIN
    IF active IS NOT NULL THEN
        is_active := format('r.%I IS TRUE', active);
        address := format('CASE WHEN %s THEN %s END', is_active, address);
    END IF;
    -- The address is no login, because another person may have it as login.
    IF login = email THEN
        own_login := 'NULL::text';
    END IF;
    RETURN format('%s AS address, %s AS login, %s AS is_active', address, own_login, is_active);
END;
$$;
COMMENT ON FUNCTION @extschema@._row_values(name, name, name) IS
    'Internal. A SELECT list that reads address, login and is_active of a row r of a table with these columns; the address is NULL if the row has no account.';

CREATE FUNCTION @extschema@._attachment(relation oid) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    names record;
BEGIN
    SELECT m.email, m.login, m.active
    INTO names
    FROM @extschema@.mailroom_attached m
    WHERE m.relation = _attachment.relation;
    IF names.email IS NULL OR names.login IS NULL OR EXISTS (
        SELECT
        FROM pg_attribute a
        WHERE a.attrelid = _attachment.relation
          AND (
              a.attname IN (names.email, names.login) AND NOT @extschema@._is_text(a.atttypid)
              OR a.attname = names.active AND a.atttypid <> 'boolean'::regtype
          )
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
    RETURN @extschema@._row_values(names.email, names.login, names.active);
END;
$$;
COMMENT ON FUNCTION @extschema@._attachment(oid) IS
    'Internal. What _row_values returns for the columns of an attached table; raises an error if it is not attached, or is part of an inheritance hierarchy.';
