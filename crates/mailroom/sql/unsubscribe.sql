SELECT mailroom_unsubscribe($1)
