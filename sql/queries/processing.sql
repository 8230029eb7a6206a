-- Rows that a container holds, or held: one whose Job is gone must be launched again. $1 int rows at most.
SELECT id FROM dispatch.tasks WHERE status = 'processing' ORDER BY id LIMIT $1
