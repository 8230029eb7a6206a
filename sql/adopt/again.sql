-- One row, whatever else is alive.
INSERT INTO dispatch.tasks (template) VALUES (:'template');
