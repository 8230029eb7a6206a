-- As failed.sql, of one batch. $1 text queue, $2 text batch, $3 text submitter, $4 int most, $5 int most rows to look at, the newest first. Only the index of batches has this order.
SELECT t.id, t.template, t.kind, left(t.spec ->> 'image', 300) AS image, t.finished_at AS at, left(t.error, 400) AS head, right(t.error, 400) AS tail
FROM (SELECT id FROM (SELECT id, status FROM dispatch.tasks
                      WHERE (queue, batch, submitted_by) >= ($1, $2, $3) AND (queue, batch, submitted_by) <= ($1, $2, $3)
                        AND batch IS NOT NULL
                      ORDER BY queue DESC, batch DESC, submitted_by DESC, id DESC LIMIT $5) AS looked_at
      WHERE status = 'failed' LIMIT $4) AS newest
JOIN dispatch.tasks AS t ON t.id = newest.id
