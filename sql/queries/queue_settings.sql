-- The rows of a queue and of `*`, which has the defaults; columns in the order of model.history.DeclaredQueue. A pause without end is cut to what a client can hold. $1 text queue.
SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending,
       CASE WHEN paused_until > '9999-12-31 UTC' THEN '9999-12-31 UTC'
            WHEN paused_until > '1900-01-01 UTC' THEN paused_until END AS paused_until,
       owner_role::text, submit_role::text, max_waiting_per_submitter, fair_submitters, left(note, 2000) AS note
FROM dispatch.queues WHERE name IN ($1, '*')
