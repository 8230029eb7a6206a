-- One row with variables, whatever else is alive. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (template, env) VALUES (:'template', :'env');
