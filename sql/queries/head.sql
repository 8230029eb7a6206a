-- First statement of every look: takes the snapshot, and says whether it is one to act upon. $1 text[] needed indexes.
SELECT pg_is_in_recovery() AS in_recovery, clock_timestamp() AS now, version, database_id::text AS database_id,
       ARRAY(SELECT name FROM unnest($1::text[]) AS name
             WHERE (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('dispatch.' || name)) IS NOT TRUE
       ) AS missing_indexes
FROM dispatch.schema_version ORDER BY version DESC LIMIT 1
