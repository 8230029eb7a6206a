-- One piece of work. A container that calls our functions gets the payload, and with `report: exit-code` none does.
-- A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (queue, template, payload) VALUES (:'queue', :'template', '{}');
