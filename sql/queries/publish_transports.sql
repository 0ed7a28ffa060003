SELECT _publish_transports($1, $2::jsonb, $3)
