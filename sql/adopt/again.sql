-- One row, whatever else is alive. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (template) VALUES (:'template');
