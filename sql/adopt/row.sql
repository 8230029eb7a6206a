-- One piece of work. The payload is what the container gets.
INSERT INTO dispatch.tasks (queue, template, payload) VALUES (:'queue', :'template', '{}');
