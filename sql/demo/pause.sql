-- Pauses a queue of the demo, or lets it go on, as an operator would. True: it is paused now. $1 text queue.
UPDATE dispatch.queues SET paused_until = CASE WHEN paused_until > now() THEN NULL ELSE 'infinity'::timestamptz END
 WHERE name = $1
RETURNING paused_until IS NOT NULL
