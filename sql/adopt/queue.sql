-- A queue of its own, once. A login with dispatch_operator runs it.
INSERT INTO dispatch.queues (name, max_jobs) VALUES (:'queue', :count);
