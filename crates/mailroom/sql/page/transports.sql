-- One row for each transport that a deliverer has published, for monitor: its worst state, since when and why, and how many live deliverers have it.
SELECT
    t.name,
    string_agg(DISTINCT t.provider, ', ' ORDER BY t.provider) AS provider,
    max(t.state)::text AS state,
    -- Another state than the worst one if the deliverers do not agree.
    min(t.state)::text AS best_state,
    (array_agg(t.reason ORDER BY t.state DESC, t.since))[1] AS reason,
    to_char(min(t.since) FILTER (WHERE t.is_worst), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS since,
    extract(epoch FROM now() - min(t.since) FILTER (WHERE t.is_worst))::float8 AS age,
    to_char(min(t.next_probe_at), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS next_probe_at,
    extract(epoch FROM min(t.next_probe_at) FILTER (WHERE isfinite(t.next_probe_at)) - now())::float8 AS probe_in,
    count(*) FILTER (WHERE t.is_live)::int4 AS deliverers,
    -- The gone ones, which are forgotten after an hour, are marked by an asterisk.
    array_agg(t.deliverer || CASE WHEN t.is_live THEN '' ELSE ' *' END ORDER BY t.deliverer) AS deliverer_names,
    sum(t.ambiguous)::int8 AS ambiguous,
    min(t.transports_error) AS error
FROM (
    SELECT
        m.name, m.provider, m.deliverer, m.state, m.reason, m.since, m.next_probe_at, m.ambiguous, d.transports_error,
        m.state = max(m.state) OVER (PARTITION BY m.name) AS is_worst,
        CASE
            WHEN starts_with(m.deliverer, 'mailroom worker/') THEN w.pid IS NOT NULL
            -- They publish every ten minutes.
            ELSE d.updated_at > now() - interval '20 minutes'
        END AS is_live
    FROM @extschema@.mailroom_transports m
    CROSS JOIN @extschema@._worker_report() w
    LEFT JOIN @extschema@.deliverers d ON d.name = m.deliverer
) t
GROUP BY t.name
ORDER BY max(t.state) DESC, t.name
