SELECT next_due, more, EXISTS (SELECT FROM deliverers d WHERE NOT starts_with(d.name, 'mailroom worker/'))
FROM _maintain_outbox($1)
