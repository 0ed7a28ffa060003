SELECT w.waiting, w.urgent, w.paused, t.next_due, t.more, EXISTS (SELECT FROM deliverers d WHERE NOT starts_with(d.name, 'mailroom worker/'))
FROM _waiting($1) w, _tend($2) t
