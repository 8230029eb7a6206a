-- Statements that the demo suggests to a newcomer.
INSERT INTO dispatch.tasks (payload) VALUES ('{"up_to": 1000000}') RETURNING id;
SELECT id, status, attempt, result, error FROM dispatch.tasks ORDER BY id DESC LIMIT 5;
