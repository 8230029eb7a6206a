-- Rows that name nothing: the default queue, the default template. $1 int how many.
INSERT INTO dispatch.tasks (queue) SELECT 'default' FROM generate_series(1, $1)
