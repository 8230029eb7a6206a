-- Deletes rows that ended more than $1 days ago. $1 int days, $2 int most rows.
SELECT dispatch.janitor_delete($1, $2)
