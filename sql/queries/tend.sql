SELECT next_due, more FROM _tend($1)
