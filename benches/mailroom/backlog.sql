-- The last token made, the tokens taken after run $1 of the worker, and the last run.
SELECT
    (SELECT last_value FROM tokens_id_seq),
    coalesce(sum(collected + skipped), 0)::bigint,
    coalesce(max(id), $1)
FROM job_runs
WHERE id > $1
