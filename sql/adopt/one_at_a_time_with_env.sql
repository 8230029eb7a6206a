-- One row with variables, and none while another one of it is alive. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (template, env, dedupe_key) VALUES (:'template', :'env', :'template');
