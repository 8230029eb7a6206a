-- The templates by which INSERT judges rows, as the janitor has written them. No parameters.
SELECT name, row_may_set, bounds, images, machines, sets, note
FROM dispatch.templates
ORDER BY name
LIMIT 10000
