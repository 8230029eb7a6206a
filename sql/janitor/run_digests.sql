-- Which run holds each row: the janitor's word on a run must not hit the next one. $1 bigint[] ids.
SELECT id, run_digest FROM dispatch.tasks WHERE id = ANY ($1::bigint[]) AND status = 'processing'
