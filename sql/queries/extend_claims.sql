SELECT mailroom_extend($1, NULL::interval, $2, $3)
