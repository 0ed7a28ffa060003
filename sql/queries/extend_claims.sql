SELECT mailroom_extend($1, NULL, $2, $3)
