-- One row for each index of an Indexed Job, as one batch. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (queue, template, batch, env)
SELECT :'queue', :'template', :'template' || to_char(now(), '-YYYYMMDD-HH24MISS'), jsonb_build_object('JOB_COMPLETION_INDEX', n::text)
FROM generate_series(0, :count - 1) AS n;
