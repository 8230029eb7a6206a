-- Group roles that do not exist. $1 text[] names.
SELECT name FROM unnest($1::text[]) AS name WHERE to_regrole(name) IS NULL
