SELECT b.room::bigint, extract(epoch FROM b.frees_at - clock_timestamp())::double precision
FROM _budget() b
