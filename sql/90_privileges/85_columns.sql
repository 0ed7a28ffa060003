-- Column grants on the outbox that follow from its definition and from that of _mail.
--
-- A new column needs a grant of its own only for a role that is not named here. The roles that see the outbox but not
-- its secrets have no right to the whole table: for a column that a role may not read, the server's error messages do
-- not quote the value. The table of grants in tests/pg_regress/expected/privileges.out shows what came of it.
--
-- A grant of INSERT on some columns of a relation keeps no role from writing the others: PostgreSQL does not check the
-- columns that a view of the user's own fills by defaults. So a role that may write some columns inserts into a view
-- that does not have the others, or has them computed. Of accounts, which applications write themselves, a trigger
-- refuses them by their values. This matters for ids too: one that is used before its turn would fail the statement that gets it from the
-- sequence. Only a collector, which may take all mail anyway, can do that, to the outbox: through a view it would need an
-- owner who reads secrets, or one whom the policies of an application do not concern.

DO $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY (
        SELECT ARRAY[
            -- Claims return all but the secrets, and what lends its rights to applications works on the same columns.
            'GRANT SELECT (ctid, xmin, '
                || string_agg(quote_ident(o.attname), ', ' ORDER BY o.attnum) FILTER (WHERE o.attname <> 'secrets')
                || ') ON @extschema@.outbox TO mailroom_sender, mailroom_definer',
            -- Collecting writes all but the id.
            'GRANT INSERT ('
                || string_agg(quote_ident(o.attname), ', ' ORDER BY o.attnum) FILTER (WHERE o.attname <> 'id')
                || ') ON @extschema@.outbox TO mailroom_collector',
            -- Applications schedule through the view, whose owner writes the table.
            'GRANT INSERT (' || string_agg(quote_ident(m.attname), ', ') || ') ON @extschema@._new_mail TO mailroom_app',
            'GRANT INSERT (' || string_agg(quote_ident(m.attname), ', ') || ') ON @extschema@.outbox TO mailroom_definer',
            -- To whom mail went.
            'GRANT SELECT ('
                || string_agg(quote_ident(m.attname), ', ') FILTER (WHERE m.atttypid = 'text[]'::regtype)
                || ') ON @extschema@.outbox TO mailroom_support'
        ]
        FROM pg_attribute o
        LEFT JOIN pg_attribute m ON m.attrelid = '@extschema@._mail'::regclass AND m.attname = o.attname
        WHERE o.attrelid = '@extschema@.outbox'::regclass
          AND o.attnum > 0
          AND NOT o.attisdropped
    ) LOOP
        EXECUTE statement;
    END LOOP;
END;
$$;
