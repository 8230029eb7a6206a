-- Digest of the run token that holds each row. The janitor's calls name it, so that they never hit the next run. $1 bigint[] ids.
SELECT id, run_digest FROM dispatch.tasks WHERE id = ANY ($1::bigint[]) AND status = 'processing'
