-- The declared queues; a few hundred rows at most.
SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending, paused_until FROM dispatch.queues
