SELECT w.waiting, w.urgent, w.paused, t.next_due, t.more, EXISTS (SELECT FROM deliverers d WHERE NOT starts_with(d.name, 'mailroom worker/'))
FROM _pending_summary($1) w, _maintain_outbox($2) t
