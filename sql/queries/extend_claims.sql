SELECT mailroom_extend_many($1, NULL::interval, $2, NULL::integer[])
