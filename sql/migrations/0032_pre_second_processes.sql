-- A container that was started again in its Pod ends with 0 and has done nothing. That end must not count as the row's.
ALTER TABLE tasks ADD COLUMN second_process boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN tasks.second_process IS 'Whether another process of the Pod that holds the row has asked for it, and was refused.';
