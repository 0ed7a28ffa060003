-- Templates: what a mail says when it was scheduled without subject or bodies.
--
-- Administrators write the table; a mail is rendered when a sender claims it, never before, and the result is not
-- stored. Invariants: every stored part is one that the engine accepts; a template that fails on a message gives
-- an error as a value, so that it hurts that message only (I8), and no value of a variable is in it (I7).
-- The templates that come with the library are no rows, so that a dump holds what people wrote and nothing else.

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
    -- One spelling for each locale; what a mail wants is brought to the same one.
    CONSTRAINT templates_locale_must_be_a_tag_in_lower_case CHECK (locale ~ '^[a-z0-9]+(-[a-z0-9]+)*$'),
    CONSTRAINT templates_subject_must_not_be_empty CHECK (subject <> ''),
    CONSTRAINT templates_must_have_a_body CHECK (body_text IS NOT NULL OR body_html IS NOT NULL)
);
COMMENT ON TABLE @extschema@.templates IS
    'One row a kind of mail and locale, in Jinja. A row replaces the template of the library for that kind and locale, see mailroom_templates; try it with mailroom_preview.';
COMMENT ON COLUMN @extschema@.templates.kind IS 'outbox.kind: activation, password_recovery, or the application''s own.';
COMMENT ON COLUMN @extschema@.templates.locale IS 'A tag in lower case, such as en or pt-br.';
COMMENT ON COLUMN @extschema@.templates.subject IS 'Renders to one line of at most 998 octets.';
COMMENT ON COLUMN @extschema@.templates.body_text IS 'Values are written as they are. NULL when there is only HTML.';
COMMENT ON COLUMN @extschema@.templates.body_html IS 'Values are escaped. NULL when there is only text.';

CREATE FUNCTION @extschema@._templates_check() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- What was good when it was dumped is left as it is, whatever the engine has learned to refuse since.
    problem text := CASE WHEN NOT @extschema@._restores() THEN coalesce(
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
    'Internal. Refuses a template that the engine does not accept. Error: 42601 with part, line and column in DETAIL.';

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
    'The templates in force: the rows of templates, and those of the library (builtin) that no row replaces. To change one of those, copy it into templates.';

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
AS $$
#variable_conflict use_column
DECLARE
    candidates CONSTANT text[] := @extschema@._locales(wanted_locale);
BEGIN
    -- The kinds that the library knows end at its own templates, or at what replaces them.
    IF wanted_kind IN ('activation', 'password_recovery') THEN
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
        WHERE t.kind = wanted_kind
          AND t.locale = ANY (candidates)
        ORDER BY array_position(candidates, t.locale)
        LIMIT 1;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._template(text, text) IS
    'Internal. The template for a kind of mail in the locale nearest to the wanted one; all NULL when there is none.';

CREATE FUNCTION @extschema@._compose(
    message @extschema@.outbox,
    OUT subject text,
    OUT body_text text,
    OUT body_html text,
    OUT error text
)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    has_body CONSTANT boolean := message.body_text IS NOT NULL OR message.body_html IS NOT NULL;
    template record;
    rendered record;
BEGIN
    subject := message.subject;
    body_text := message.body_text;
    body_html := message.body_html;
    IF subject IS NOT NULL AND has_body THEN
        RETURN;
    END IF;
    SELECT t.* INTO template FROM @extschema@._template(message.kind::text, message.data ->> 'locale') t;
    IF template.locale IS NULL THEN
        error := format('there is no template for kind "%s"', message.kind);
        RETURN;
    END IF;
    -- The two bodies say the same thing, so a message brings both of its own or neither.
    SELECT r.* INTO rendered
    FROM @extschema@._render(
        CASE WHEN subject IS NULL THEN template.subject END,
        CASE WHEN NOT has_body THEN template.body_text END,
        CASE WHEN NOT has_body THEN template.body_html END,
        (
            message.data
            || CASE
                WHEN isfinite(message.expires_at) THEN jsonb_build_object(
                    'expires_at', to_char(message.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
                )
                ELSE '{}'
            END
            || jsonb_build_object(
                'kind', message.kind,
                'locale', template.locale,
                'message_id', message.message_id,
                'recipients', message.recipients
            )
        )::text
    ) r;
    IF rendered.error IS NOT NULL THEN
        subject := NULL;
        body_text := NULL;
        body_html := NULL;
        error := format('template %s/%s, %s', message.kind, template.locale, rendered.error);
        RETURN;
    END IF;
    subject := coalesce(subject, rendered.subject);
    body_text := coalesce(body_text, rendered.body_text);
    body_html := coalesce(body_html, rendered.body_html);
END;
$$;
COMMENT ON FUNCTION @extschema@._compose(@extschema@.outbox) IS
    'Internal. What a row of outbox says: its own subject and bodies, and for those it lacks the template of its kind in the locale nearest to data.locale. On failure all are NULL but error, which holds no value of the message.';

CREATE FUNCTION @extschema@.mailroom_preview(
    kind text,
    data jsonb DEFAULT '{}',
    locale text DEFAULT NULL,
    OUT subject text,
    OUT body_text text,
    OUT body_html text
)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    base CONSTANT text := @extschema@._link_base_url();
    token CONSTANT text := repeat('A', 86);
    is_token_mail CONSTANT boolean := kind IN ('activation', 'password_recovery');
    samples jsonb := '{}';
    composed record;
BEGIN
    IF jsonb_typeof(data) IS DISTINCT FROM 'object' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'data is not a JSON object',
            HINT = 'Pass the variables by name: {"login": "alice"}.';
    END IF;
    IF is_token_mail THEN
        samples := jsonb_build_object('login', 'alice', 'token', token, 'code', '01234');
    END IF;
    IF is_token_mail AND base IS NOT NULL THEN
        samples := samples || jsonb_build_object('link', base || CASE kind
            WHEN 'activation' THEN '/activate?token='
            ELSE '/recover?token='
        END || token);
    END IF;
    SELECT c.*
    INTO composed
    FROM @extschema@._compose(jsonb_populate_record(NULL::@extschema@.outbox, jsonb_build_object(
        'kind', kind,
        'message_id', '00000000-0000-0000-0000-000000000000',
        'recipients', ARRAY['recipient@example.com'],
        'expires_at', CASE WHEN is_token_mail THEN '2030-01-01 12:15:00+00' END,
        'data', samples || data || CASE WHEN locale IS NULL THEN '{}' ELSE jsonb_build_object('locale', locale) END
    ))) c;
    IF composed.error IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('mail of kind "%s" cannot be rendered', kind),
            DETAIL = composed.error,
            HINT = CASE
                WHEN composed.error LIKE 'there is no template %' THEN 'The templates in force are in mailroom_templates.'
                ELSE 'Pass what the template needs in data, or let it do without: {{ name | default("") }}.'
            END;
    END IF;
    subject := composed.subject;
    body_text := composed.body_text;
    body_html := composed.body_html;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_preview(text, jsonb, text) IS
    'What mail of this kind would say with these variables, in the locale nearest to the wanted one; sends nothing. activation and password_recovery come with sample values, which data replaces. Errors: 22023 when there is no template or when it fails, with part, line and column in DETAIL.';
