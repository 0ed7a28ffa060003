SELECT room, frees_at, urgent_room, urgent_frees_at, reason FROM _budget()
