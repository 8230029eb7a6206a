-- Writes down what ended launches. $1 text ends (JSON).
SELECT dispatch.janitor_ended($1::jsonb)
