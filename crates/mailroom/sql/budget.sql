SELECT b.room::bigint, extract(epoch FROM b.frees_at - clock_timestamp())::double precision
FROM _budget(1) b
