-- A queue of its own, by an operator.
INSERT INTO dispatch.queues (name, max_jobs) VALUES (:'queue', :count);
