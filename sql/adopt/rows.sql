-- One row for each Pod of a Job with completions.
INSERT INTO dispatch.tasks (template) SELECT :'template' FROM generate_series(1, :count) AS n;
