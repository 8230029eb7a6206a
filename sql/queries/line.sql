-- Place of a waiting row in its queue: due rows that come first by priority and id, those of them that are of the same kind, and all due rows of the queue. Each count stops at $5. The orders name the index to be read. $1 text queue, $2 smallint priority, $3 bigint id, $4 timestamptz now, $5 int most, $6 bytea kind.
SELECT least(ready_before.n + due.before, $5) AS before, least(ready.n + due.n, $5) AS of, ready_before.alike + due.alike AS alike
FROM (SELECT count(*)::int AS n, (count(*) FILTER (WHERE kind = $6))::int AS alike FROM (
          SELECT kind FROM dispatch.tasks
          WHERE status = 'waiting' AND run_at IS NULL AND queue = $1 AND (priority, id) < ($2, $3)
          ORDER BY priority, id LIMIT $5
      ) AS first) AS ready_before,
     (SELECT count(*)::int AS n FROM (
          SELECT FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = $1
          ORDER BY priority, id LIMIT $5
      ) AS every) AS ready,
     (SELECT count(*)::int AS n, (count(*) FILTER (WHERE (priority, id) < ($2, $3)))::int AS before,
             (count(*) FILTER (WHERE (priority, id) < ($2, $3) AND kind = $6))::int AS alike FROM (
          SELECT priority, id, kind FROM dispatch.tasks
          WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $4 AND queue = $1
          ORDER BY run_at, id LIMIT $5
      ) AS late) AS due
