-- How many rows there are.
SELECT count(*) FROM dispatch.tasks
