-- Which process of its Pod holds the row. A container that is started again in its Pod is another process.
ALTER TABLE tasks ADD COLUMN run_id text;
COMMENT ON COLUMN tasks.run_id IS 'A random text of the process that called task_start; NULL: it sent none.';
