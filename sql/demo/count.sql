-- Number of rows.
SELECT count(*) FROM dispatch.tasks
