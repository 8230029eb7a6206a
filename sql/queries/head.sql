-- First statement of every look: takes the snapshot, and says whether it is one to act upon. $1 text[] needed indexes.
SELECT pg_is_in_recovery() AS in_recovery, clock_timestamp() AS now, version, database_id::text AS database_id,
       ARRAY(SELECT name FROM unnest($1::text[]) AS name
             WHERE NOT EXISTS (SELECT FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
                               WHERE c.relname = name AND c.relnamespace = 'dispatch'::regnamespace AND i.indisvalid)
       ) AS missing_indexes
FROM dispatch.schema_version ORDER BY version DESC LIMIT 1
