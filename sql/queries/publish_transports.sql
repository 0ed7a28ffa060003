SELECT _publish_transports($1, $2::pg_catalog.jsonb, $3)
