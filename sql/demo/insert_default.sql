-- Inserts rows with the default queue and the default template. $1 int number of rows.
INSERT INTO dispatch.tasks (queue) SELECT 'default' FROM generate_series(1, $1)
