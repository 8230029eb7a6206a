-- Sets the longest time of a statement until the transaction ends, or its savepoint is rolled back. $1 text milliseconds.
SELECT set_config('statement_timeout', $1::text, true)
