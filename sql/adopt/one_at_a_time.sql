-- One row, and none while another one of it is alive.
INSERT INTO dispatch.tasks (template, dedupe_key) VALUES (:'template', :'template');
