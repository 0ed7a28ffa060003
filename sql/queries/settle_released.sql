SELECT mailroom_release_many($1, $2, $3)
