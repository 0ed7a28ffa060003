SELECT collected, skipped, highest FROM _run_batch($1, $2)
