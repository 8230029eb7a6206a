-- One piece of work. The payload is what the container gets. A login with dispatch_submitter runs it.
INSERT INTO dispatch.tasks (queue, template, payload) VALUES (:'queue', :'template', '{}');
