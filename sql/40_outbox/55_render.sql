-- Rendering: what a template makes of the variables of a message.
--
-- Claims (50_queue/50_claim.sql) render mail, mailroom_preview shows the result to people. Invariant: variables,
-- secrets among them, are never a parameter of a nested statement (I7).

CREATE FUNCTION @extschema@._render(
    subject_source text,
    text_source text,
    html_source text,
    variables text,
    OUT subject text,
    OUT body_text text,
    OUT body_html text,
    OUT error text
) RETURNS SETOF record
    LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME', '_render_wrapper';
COMMENT ON FUNCTION @extschema@._render(text, text, text, text) IS
    'Internal. Renders the parts that are not NULL with these variables, the text of a JSON object. Returns one row: the parts, or all NULL except error, which contains no value of a variable.';

-- The planner inlines it, so that its arguments, which include secrets, are no parameters of a nested statement.
CREATE FUNCTION @extschema@._template_variables(
    data jsonb,
    expires_at timestamptz,
    kind text,
    locale text,
    message_id uuid,
    recipients text[]
) RETURNS text
    LANGUAGE sql STABLE
RETURN (
    data
    || CASE
        WHEN isfinite(expires_at)
        THEN jsonb_build_object(
            'kind', kind, 'locale', locale, 'message_id', message_id, 'recipients', recipients,
            'expires_at', to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
        )
        ELSE jsonb_build_object('kind', kind, 'locale', locale, 'message_id', message_id, 'recipients', recipients)
    END
)::text;
COMMENT ON FUNCTION @extschema@._template_variables(jsonb, timestamptz, text, text, uuid, text[]) IS
    'Internal. The variables that a template is rendered with: those of the message, and those that mailroom adds.';

CREATE FUNCTION @extschema@._sample_secrets(kind text) RETURNS jsonb
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_sample_secrets_wrapper';
COMMENT ON FUNCTION @extschema@._sample_secrets(text) IS
    'Internal. Sample values like those of _secrets for a preview, which open nothing; NULL for a kind that is no token action.';

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
DECLARE
    samples CONSTANT jsonb := jsonb_build_object('login', 'alice') || @extschema@._sample_secrets(kind);
    template record;
    error text;
BEGIN
    IF jsonb_typeof(data) IS DISTINCT FROM 'object' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'data must be a JSON object',
            DETAIL = format('It is %s.', coalesce('a JSON ' || jsonb_typeof(data), 'NULL')),
            HINT = 'Pass the variables by name: {"login": "alice"}.';
    END IF;
    SELECT t.* INTO template FROM @extschema@._template(kind, coalesce(locale, data ->> 'locale')) t;
    IF template.locale IS NULL THEN
        RAISE no_data_found USING
            MESSAGE = format('mail of kind "%s" cannot be rendered', kind),
            DETAIL = format('There is no template for kind "%s".', kind),
            HINT = 'The templates in force are in mailroom_templates.';
    END IF;
    SELECT r.subject, r.body_text, r.body_html, CASE WHEN r.error IS NOT NULL THEN format('template %s/%s, %s', kind, template.locale, r.error) END
    INTO subject, body_text, body_html, error
    FROM @extschema@._render(
        template.subject, template.body_text, template.body_html,
        @extschema@._template_variables(
            coalesce(samples, '{}') || data || CASE WHEN locale IS NULL THEN '{}' ELSE jsonb_build_object('locale', locale) END,
            CASE WHEN samples IS NOT NULL THEN '2030-01-01 12:15:00+00'::timestamptz END,
            kind, template.locale, '00000000-0000-0000-0000-000000000000'::uuid, '{recipient@example.com}'::text[]
        )
    ) r;
    IF error IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('mail of kind "%s" cannot be rendered', kind),
            DETAIL = error,
            HINT = 'Pass what the template needs in data, or let it do without: {{ name | default("", true) }}.';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_preview(text, jsonb, text) IS
    'Shows what mail of this kind would contain with these variables, in the nearest locale; sends nothing. Kinds of token mail come with sample values, which data can replace.';
