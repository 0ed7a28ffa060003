SELECT w.waiting, w.urgent, w.paused, t.next_due, t.more, _others_deliver($2)
FROM _pending_summary($1) w, _maintain_outbox() t
