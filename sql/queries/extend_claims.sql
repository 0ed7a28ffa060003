SELECT mailroom_extend_many($1, make_interval(secs => $3), $2, NULL::integer[])
