-- Rows hold no secret any more. start_key and run_token are derived from a secret of the database, and a row keeps only the
-- digest of its run's token. So `SELECT *` shows no key.

-- HMAC-SHA-256 without an extension: sha256 is built in, and the 64-byte blocks of a key (key xor ipad, key xor opad) are stored.
CREATE TABLE dispatch.secrets (
    generation  integer     PRIMARY KEY,
    start_inner bytea       NOT NULL CHECK (octet_length(start_inner) = 64),
    start_outer bytea       NOT NULL CHECK (octet_length(start_outer) = 64),
    run_inner   bytea       NOT NULL CHECK (octet_length(run_inner) = 64),
    run_outer   bytea       NOT NULL CHECK (octet_length(run_outer) = 64),
    made_at     timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE dispatch.secrets IS 'The secrets that keys are derived from: the newest generation, and the one before it for Jobs that were made with it. `rotate_secrets` makes a new one.';
COMMENT ON COLUMN dispatch.secrets.generation IS 'Grows by one with each rotation.';
COMMENT ON COLUMN dispatch.secrets.start_inner IS 'Start secret xor 0x36, 64 bytes. Start keys come from it; the dispatcher reads it.';
COMMENT ON COLUMN dispatch.secrets.start_outer IS 'Start secret xor 0x5c, 64 bytes.';
COMMENT ON COLUMN dispatch.secrets.run_inner IS 'Run secret xor 0x36, 64 bytes. Run tokens come from it; the functions alone read it.';
COMMENT ON COLUMN dispatch.secrets.run_outer IS 'Run secret xor 0x5c, 64 bytes.';
COMMENT ON COLUMN dispatch.secrets.made_at IS 'When it was made.';

CREATE FUNCTION dispatch.new_secret(OUT inner_block bytea, OUT outer_block bytea)
LANGUAGE plpgsql AS $$
DECLARE
    -- gen_random_uuid has 122 random bits of the server's strong source, so four of them make a full key.
    key bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                        || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    byte integer;
BEGIN
    inner_block := decode(repeat('36', 64), 'hex');
    outer_block := decode(repeat('5c', 64), 'hex');
    FOR i IN 0..31 LOOP
        byte := get_byte(key, i);
        inner_block := set_byte(inner_block, i, byte # 54);
        outer_block := set_byte(outer_block, i, byte # 92);
    END LOOP;
END
$$;
COMMENT ON FUNCTION dispatch.new_secret IS 'The two HMAC blocks of a fresh random key of 32 bytes.';

CREATE FUNCTION dispatch.rotate_secrets() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made integer;
BEGIN
    LOCK TABLE dispatch.secrets IN SHARE ROW EXCLUSIVE MODE; -- two rotations at once come one after the other
    INSERT INTO dispatch.secrets (generation, start_inner, start_outer, run_inner, run_outer)
    SELECT coalesce((SELECT max(generation) FROM dispatch.secrets), 0) + 1,
           s.inner_block, s.outer_block, r.inner_block, r.outer_block
    FROM dispatch.new_secret() AS s, dispatch.new_secret() AS r
    RETURNING generation INTO made;
    DELETE FROM dispatch.secrets WHERE generation < made - 1;
    RETURN made;
END
$$;
COMMENT ON FUNCTION dispatch.rotate_secrets IS 'New secrets; for the owner alone. Those of one rotation ago stay valid, so leave as long as a task may wait and run between two rotations.';

SELECT dispatch.rotate_secrets();

CREATE FUNCTION dispatch.hmac(inner_block bytea, outer_block bytea, message bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$ SELECT sha256(outer_block || sha256(inner_block || message)) $$;
COMMENT ON FUNCTION dispatch.hmac IS 'HMAC-SHA-256 by the two blocks of a key.';

CREATE FUNCTION dispatch.as_uuid(digest bytea) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$ SELECT encode(substring(digest FOR 16), 'hex')::uuid $$;
COMMENT ON FUNCTION dispatch.as_uuid IS 'The first 16 bytes of a digest.';

CREATE FUNCTION dispatch.field(words text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN words IS NULL THEN int4send(-1)
           ELSE int4send(octet_length(convert_to(words, 'UTF8'))) || convert_to(words, 'UTF8') END
$$;
COMMENT ON FUNCTION dispatch.field IS 'A text with its length before it, so that two fields never run together; NULL is not the empty text.';

CREATE FUNCTION dispatch.start_keys(id bigint, created_at timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT dispatch.as_uuid(dispatch.hmac(s.start_inner, s.start_outer, convert_to('start', 'UTF8') || int8send(id)
                            || int8send((extract(epoch FROM created_at) * 1000000)::bigint)))
    FROM dispatch.secrets AS s ORDER BY s.generation DESC
$$;
COMMENT ON FUNCTION dispatch.start_keys IS 'The start keys of a row, the newest first; the dispatcher derives the first one, too.';

CREATE FUNCTION dispatch.run_tokens(id bigint, attempt integer, launch integer, job_uid text, pod text) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT dispatch.as_uuid(dispatch.hmac(s.run_inner, s.run_outer, convert_to('run', 'UTF8') || int8send(id)
                            || int4send(attempt) || int4send(launch) || dispatch.field(job_uid) || dispatch.field(pod)))
    FROM dispatch.secrets AS s ORDER BY s.generation DESC
$$;
COMMENT ON FUNCTION dispatch.run_tokens IS 'The tokens of a run, the newest first: the same Pod of the same Job gets the same ones.';

CREATE FUNCTION dispatch.token_digest(token uuid) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT sha256(uuid_send(token)) $$;
COMMENT ON FUNCTION dispatch.token_digest IS 'What a row keeps of a key.';

CREATE FUNCTION dispatch.subdomain(name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN length(name) <= 253
                 AND name ~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$' THEN name END
$$;
COMMENT ON FUNCTION dispatch.subdomain IS 'A name as Kubernetes allows it for nodes and Pods (RFC 1123 subdomain); any other: NULL.';

-- Jobs that exist at the upgrade hold an old key. Its digest is enough to check it.
CREATE TABLE dispatch.earlier_start_keys (
    task_id bigint PRIMARY KEY,
    digest  bytea  NOT NULL
);
COMMENT ON TABLE dispatch.earlier_start_keys IS 'Digests of the start keys that rows had as a column, for the Jobs of that time. Nothing is added.';
COMMENT ON COLUMN dispatch.earlier_start_keys.task_id IS 'The task.';
COMMENT ON COLUMN dispatch.earlier_start_keys.digest IS 'Digest of its start key.';
INSERT INTO dispatch.earlier_start_keys
SELECT id, dispatch.token_digest(start_key) FROM dispatch.tasks WHERE status IN ('waiting', 'processing');

ALTER TABLE dispatch.tasks ADD COLUMN run_digest bytea;
UPDATE dispatch.tasks SET run_digest = dispatch.token_digest(run_token) WHERE status = 'processing';
ALTER TABLE dispatch.tasks
    DROP CONSTRAINT token_while_processing,
    ADD CONSTRAINT token_while_processing CHECK ((status = 'processing') = (run_digest IS NOT NULL)),
    DROP COLUMN start_key,
    DROP COLUMN run_token;
COMMENT ON COLUMN dispatch.tasks.run_digest IS 'Digest of the token that the container of the current run reports with.';
COMMENT ON COLUMN dispatch.tasks.node_name IS 'Node of the newest launch that started, as its container said it; NULL where that is no name of a node.';
COMMENT ON COLUMN dispatch.tasks.pod_name IS 'Pod of the newest launch that started, as its container said it; NULL where that is no name of a Pod.';

-- A launch that ended long ago does not repeat its report.
ALTER TABLE dispatch.task_launches ADD COLUMN run_digest bytea;
UPDATE dispatch.task_launches SET run_digest = dispatch.token_digest(run_token)
WHERE ended_at IS NULL OR ended_at > now() - interval '1 day';
ALTER TABLE dispatch.task_launches DROP COLUMN run_token;
CREATE UNIQUE INDEX task_launches_run ON dispatch.task_launches (run_digest) WHERE run_digest IS NOT NULL;
COMMENT ON COLUMN dispatch.task_launches.run_digest IS 'Digest of the run''s token; NULL for launches that had ended a day before the token became a digest.';
