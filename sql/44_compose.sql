-- Composing: what a mail says that came without a subject or a body.
--
-- mailroom_claim calls _compose for such rows, and for no others, after it has judged them and before it
-- claims them. What it returns goes to the claimant and is not stored. It must not write and must not
-- raise: a mail that cannot be composed has a failure, ends as error with it, and hurts no other (I8).

CREATE FUNCTION @extschema@._compose(
    message @extschema@.outbox,
    OUT subject text,
    OUT body_text text,
    OUT body_html text,
    OUT failure text
)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT message.subject::text, message.body_text, message.body_html, NULL::text $$;
COMMENT ON FUNCTION @extschema@._compose(@extschema@.outbox) IS
    'Internal. Subject and bodies of a message as they are to be sent, or why there are none. The message as it is.';
