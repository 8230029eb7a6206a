-- One row with variables, whatever else is alive.
INSERT INTO dispatch.tasks (template, env) VALUES (:'template', :'env');
