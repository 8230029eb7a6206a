-- The declared queues; a few hundred rows at most. A pause without end is cut to what a client can hold.
SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending,
       CASE WHEN paused_until > '9999-12-31 UTC' THEN '9999-12-31 UTC' WHEN paused_until > '1900-01-01 UTC' THEN paused_until
       END AS paused_until
FROM dispatch.queues
