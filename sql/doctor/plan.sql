-- The plan of the statement that was prepared as doctor_looks_at; its parameters follow.
EXPLAIN (FORMAT JSON) EXECUTE doctor_looks_at
