SELECT mailroom_mark_sent_many($1, $2, $3, $4, $5::jsonb[])
