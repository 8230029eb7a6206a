-- Ids of the newest waiting rows, and their number; columns in the order of model.history.Found. The query reads rows without a run_at from the end of each priority of a queue, because their index has no other order of ids. The comparison of pairs and `id + 0` keep the plan from reading the primary key from its end. $1 bigint before which id, $2 text[] queues; NULL: every queue. $3 int most that are counted, $4 int most ids, $5 bool whether the rows are due; NULL: both.
WITH RECURSIVE line AS (
    SELECT name AS queue, (SELECT priority FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = name
                           ORDER BY priority LIMIT 1) AS priority
    FROM dispatch.queues WHERE ($2::text[] IS NULL OR name = ANY ($2)) AND $5::bool IS DISTINCT FROM false
    UNION ALL
    SELECT queue, (SELECT priority FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = line.queue
                   AND priority > line.priority ORDER BY priority LIMIT 1)
    FROM line WHERE priority IS NOT NULL
), found AS MATERIALIZED (
    (SELECT newest.id
     FROM line CROSS JOIN LATERAL (
         SELECT id FROM dispatch.tasks
         WHERE status = 'waiting' AND run_at IS NULL AND queue = line.queue
           AND priority >= line.priority AND (priority, id) < (line.priority, $1)
         ORDER BY priority DESC, id DESC LIMIT $3) AS newest)
    UNION ALL
    (SELECT id FROM dispatch.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND id + 0 < $1
       AND queue = ANY (ARRAY(SELECT name FROM dispatch.queues WHERE $2::text[] IS NULL OR name = ANY ($2)))
       AND ($5 IS NULL OR (run_at <= now()) = $5))
    ORDER BY id DESC LIMIT $3
)
SELECT ARRAY(SELECT id FROM found LIMIT $4) AS ids, (SELECT count(*)::int FROM found) AS matching
