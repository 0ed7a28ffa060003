SELECT collected, skipped FROM _run_batch($1, $2)
