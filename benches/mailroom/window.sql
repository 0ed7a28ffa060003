-- Tokens taken by batches that began from $1 on and before $2; their milliseconds: in
-- total, the median, and the longest.
SELECT
    sum(collected + skipped)::float8,
    1000 * extract(epoch FROM sum(duration))::float8,
    1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM duration)::float8),
    1000 * extract(epoch FROM max(duration))::float8
FROM job_runs
WHERE started_at >= $1
  AND started_at < $2
