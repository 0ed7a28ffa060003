SELECT mailroom_mark_sent($1, $2, $3, $4)
