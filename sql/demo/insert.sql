-- Inserts a sample row and gives its id. $1 text queue, $2 text template, $3 text spec (JSON), $4 text payload (JSON), $5 text cache key.
INSERT INTO dispatch.tasks (queue, template, spec, payload, cache_key)
VALUES ($1, $2, $3::text::jsonb, $4::text::jsonb, $5)
RETURNING id
