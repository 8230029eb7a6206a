-- What a new connection asks of its server.

-- name: read_only
-- What the dispatcher asks for must change nothing.
SET default_transaction_read_only = on

-- name: lost
-- The settings that the session was to have and has not, as a text; NULL: none. $1 text: JSON of name and value.
SELECT string_agg(format('%s = %s', wanted.key, wanted.value), ', ' ORDER BY wanted.key)
FROM json_each_text($1::text::json) AS wanted
LEFT JOIN pg_catalog.pg_settings AS found ON lower(found.name) = lower(wanted.key)
WHERE found.setting IS DISTINCT FROM wanted.value
