-- Brings the table `templates` in step. $1 text templates (JSON array), $2 boolean whether others are deleted.
SELECT dispatch.janitor_templates($1::jsonb, $2)
