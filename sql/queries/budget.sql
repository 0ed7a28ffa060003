SELECT room, frees_at FROM _budget(1)
