-- One row for each Pod of a Job, as one batch. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (queue, template, batch)
SELECT :'queue', :'template', :'template' || to_char(now(), '-YYYYMMDD-HH24MISS') FROM generate_series(1, :count) AS n;
