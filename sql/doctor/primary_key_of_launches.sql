-- Makes the primary key of task_launches again, for the command that mends its absence.
ALTER TABLE dispatch.task_launches ADD CONSTRAINT task_launches_pkey PRIMARY KEY (task_id, attempt, launch)
