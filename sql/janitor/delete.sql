-- Deletes rows that ended so many days ago. $1 int days, $2 int rows at most.
SELECT dispatch.janitor_delete($1, $2)
