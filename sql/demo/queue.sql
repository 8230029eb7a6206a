-- Creates a queue of the demo. $1 text name, $2 int most Jobs at once, $3 text note.
INSERT INTO dispatch.queues (name, max_jobs, note) VALUES ($1, $2, $3)
