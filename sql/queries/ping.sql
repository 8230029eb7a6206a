-- A sign of life of the listening session.
SELECT 1
