-- One row for each index of an Indexed Job.
INSERT INTO dispatch.tasks (template, env)
SELECT :'template', jsonb_build_object('JOB_COMPLETION_INDEX', n::text) FROM generate_series(0, :count - 1) AS n;
