-- Brings reasons over. $1 text report (JSON).
SELECT dispatch.janitor_tell($1::jsonb)
