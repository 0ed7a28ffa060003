SELECT
    extract(epoch FROM mailroom_next_due($1) - clock_timestamp())::double precision,
    EXISTS (SELECT FROM pauses),
    _lease(),
    _batch_limit(),
    extract(epoch FROM current_setting('mailroom.batch_timeout')::interval)::double precision,
    extract(epoch FROM current_setting('mailroom.poll_interval')::interval)::double precision,
    current_setting('mailroom.collect')::boolean,
    current_setting('mailroom.channel'),
    quote_ident(current_setting('mailroom.channel')),
    'outbox_due' IN (SELECT c.channel FROM pg_listening_channels() c (channel)),
    _redirect_setting(),
    (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'mailroom')
