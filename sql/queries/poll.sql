SELECT w.waiting, w.urgent, w.paused, t.next_due, t.more
FROM _waiting($1) w, _tend($2) t
