SELECT waiting, urgent, paused FROM _pending_summary($1)
