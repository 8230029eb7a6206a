-- Makes the primary key of tasks again, for the command that mends its absence.
ALTER TABLE dispatch.tasks ADD CONSTRAINT tasks_pkey PRIMARY KEY (id)
