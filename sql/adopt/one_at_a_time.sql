-- One row, and none while another one of it is alive. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (template, dedupe_key) VALUES (:'template', :'template');
