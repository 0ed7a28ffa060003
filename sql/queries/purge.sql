SELECT more FROM mailroom_purge(1000)
