SELECT next_due FROM _tend($1)
