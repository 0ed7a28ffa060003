SELECT next_due, more, _others_deliver($1)
FROM _maintain_outbox()
