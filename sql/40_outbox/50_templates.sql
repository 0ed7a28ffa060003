-- Templates: the subject and the bodies of a mail that was scheduled without them.
--
-- Administrators write the table; a mail is rendered when a sender claims it, never before, and the result is not
-- stored. Invariants: the engine accepts every stored part; a template that fails on a message gives an error as a
-- value, so that it hurts that message only (I8), and the error contains no value of a variable (I7). The templates of
-- the library are no rows, so that a dump contains only what people wrote.

CREATE FUNCTION @extschema@._template_problem(part text, source text) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_template_problem_wrapper';
COMMENT ON FUNCTION @extschema@._template_problem(text, text) IS
    'Internal. Why the engine rejects this source as subject, body_text or body_html of a template, with line and column; NULL if it accepts it.';

CREATE FUNCTION @extschema@._builtin_templates(
    OUT kind text,
    OUT locale text,
    OUT subject text,
    OUT body_text text,
    OUT body_html text
) RETURNS SETOF record
    LANGUAGE c STABLE PARALLEL SAFE ROWS 3
    AS 'MODULE_PATHNAME', '_builtin_templates_wrapper';
COMMENT ON FUNCTION @extschema@._builtin_templates() IS 'Internal. The templates that are built into the library.';

CREATE FUNCTION @extschema@._locales(wanted text) RETURNS text[]
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_locales_wrapper';
COMMENT ON FUNCTION @extschema@._locales(text) IS
    'Internal. The locales in which to look for a template, best first: the wanted one and its shorter forms, then mailroom.locale and its shorter forms.';

CREATE TABLE @extschema@.templates (
    kind text NOT NULL,
    locale text NOT NULL,
    subject text NOT NULL,
    body_text text,
    body_html text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT templates_pkey PRIMARY KEY (kind, locale),
    CONSTRAINT templates_kind_must_not_be_empty CHECK (kind <> ''),
    -- One spelling for each locale; the locale of a message is converted to it.
    CONSTRAINT templates_locale_must_be_a_tag_in_lower_case CHECK (locale ~ '^[a-z0-9]+(-[a-z0-9]+)*$'),
    CONSTRAINT templates_subject_must_not_be_empty CHECK (subject <> ''),
    CONSTRAINT templates_must_have_a_body CHECK (body_text IS NOT NULL OR body_html IS NOT NULL)
);
COMMENT ON TABLE @extschema@.templates IS
    'One row for each kind of mail and locale, in Jinja. A row replaces the built-in template for that kind and locale; try it with mailroom_preview.';
COMMENT ON COLUMN @extschema@.templates.kind IS
    'outbox.kind: activation, password_recovery, or a name of the application''s.';
COMMENT ON COLUMN @extschema@.templates.locale IS 'A language tag in lower case, such as en or pt-br.';
COMMENT ON COLUMN @extschema@.templates.subject IS 'Renders to one line of at most 998 octets.';
COMMENT ON COLUMN @extschema@.templates.body_text IS 'Variables are inserted as they are; NULL if there is only HTML.';
COMMENT ON COLUMN @extschema@.templates.body_html IS 'Variables are escaped; NULL if there is only text.';

CREATE FUNCTION @extschema@._templates_check() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- A template that was valid when it was dumped is restored, even if the engine has become stricter since.
    problem text := CASE WHEN NOT @extschema@._is_restoring() THEN coalesce(
        @extschema@._template_problem('subject'::text, NEW.subject),
        @extschema@._template_problem('body_text'::text, NEW.body_text),
        @extschema@._template_problem('body_html'::text, NEW.body_html)
    ) END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE syntax_error USING
            MESSAGE = format('template %s/%s cannot be used', NEW.kind, NEW.locale),
            DETAIL = problem,
            HINT = 'Templates are written in Jinja, without include, extends, import and macro.';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := now();
    END IF;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._templates_check() IS
    'Internal. Rejects a template that the engine does not accept, with part, line and column in DETAIL.';

CREATE TRIGGER templates_check
    BEFORE INSERT OR UPDATE ON @extschema@.templates
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._templates_check();

CREATE VIEW @extschema@.mailroom_templates AS
SELECT t.kind, t.locale, t.subject, t.body_text, t.body_html, false AS builtin
FROM @extschema@.templates t
UNION ALL
SELECT b.kind, b.locale, b.subject, b.body_text, b.body_html, true
FROM @extschema@._builtin_templates() b
WHERE NOT EXISTS (
    SELECT
    FROM @extschema@.templates t
    WHERE t.kind = b.kind
      AND t.locale = b.locale
);
COMMENT ON VIEW @extschema@.mailroom_templates IS
    'The templates in force: the rows of templates, and the built-in ones that no row replaces. To change a built-in template, copy it into templates.';

CREATE FUNCTION @extschema@._template(
    wanted_kind text,
    wanted_locale text,
    OUT locale text,
    OUT subject text,
    OUT body_text text,
    OUT body_html text
)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    candidates CONSTANT text[] := @extschema@._locales(wanted_locale);
BEGIN
    -- For kinds that the library knows, the last resort is the built-in template or its replacement.
    IF wanted_kind IN ('activation', 'password_recovery', 'password_changed') THEN
        SELECT t.locale, t.subject, t.body_text, t.body_html
        INTO locale, subject, body_text, body_html
        FROM @extschema@.mailroom_templates t
        WHERE t.kind = wanted_kind
          AND (t.locale = ANY (candidates) OR t.locale = 'en')
        ORDER BY array_position(candidates, t.locale)
        LIMIT 1;
    ELSE
        SELECT t.locale, t.subject, t.body_text, t.body_html
        INTO locale, subject, body_text, body_html
        FROM @extschema@.templates t
        WHERE t.kind = _template.wanted_kind
          AND t.locale = ANY (local.candidates)
        ORDER BY array_position(local.candidates, t.locale)
        LIMIT 1;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._template(text, text) IS
    'Internal. The template for a kind of mail in the locale nearest to the wanted one; all NULL if there is none.';
