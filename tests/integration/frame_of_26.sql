-- The first statement of every look in version 26. $1 text[] needed indexes, $2 int most held rows, $3 int newest migration that the program knows.
SELECT pg_is_in_recovery() AS in_recovery, statement_timestamp() AS now, version, database_id::text AS database_id,
       ARRAY(SELECT name FROM unnest($1::text[]) AS name
             WHERE (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('dispatch.' || name)) IS NOT TRUE
       ) AS missing_indexes,
       ARRAY(SELECT name FROM dispatch.schema_version WHERE version > $3 ORDER BY version) AS newer,
       ( -- a pause without end is cut to what a client can hold
         SELECT coalesce(json_agg(q), '[]')::text
         FROM (SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending,
                      coalesce((to_jsonb(queues) ->> 'fair_submitters')::boolean, false) AS fair_submitters,
                      CASE WHEN paused_until > '9999-12-31 UTC' THEN '9999-12-31 UTC'
                           WHEN paused_until > '1900-01-01 UTC' THEN paused_until END AS paused_until
               FROM dispatch.queues) AS q
       ) AS queues,
       ARRAY(SELECT id FROM dispatch.tasks WHERE status = 'processing' ORDER BY id LIMIT $2) AS held,
       (SELECT min(head.run_at)
        FROM dispatch.queues AS q
        CROSS JOIN LATERAL (
            SELECT run_at FROM dispatch.tasks
            WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > statement_timestamp() AND queue = q.name
            ORDER BY run_at LIMIT 1
        ) AS head
       ) AS next_due
FROM dispatch.schema_version ORDER BY version DESC LIMIT 1
