-- Declares the queues that are missing, and returns their names. A queue that exists keeps all its values: an operator may have changed them. $1 jsonb list of objects with columns of the table.
INSERT INTO dispatch.queues (name, weight, max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role,
                             submit_role, max_waiting_per_submitter, note, fair_submitters)
SELECT name, coalesce(weight, 1), max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role,
       submit_role, max_waiting_per_submitter, note, coalesce(fair_submitters, false)
FROM jsonb_to_recordset($1::jsonb) AS declared (
    name text, weight integer, max_jobs integer, max_jobs_per_submitter integer, max_pending integer,
    paused_until timestamptz, owner_role name, submit_role name, max_waiting_per_submitter integer, note text,
    fair_submitters boolean
)
ON CONFLICT (name) DO NOTHING
RETURNING name
