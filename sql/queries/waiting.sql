SELECT waiting, urgent, paused FROM _waiting($1)
