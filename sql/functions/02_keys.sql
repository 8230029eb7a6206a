-- The keys of rows and the tokens of runs. No column holds them: they are derived from the secrets of the table `secrets`.

CREATE OR REPLACE FUNCTION dispatch_private.new_secret(OUT inner_block bytea, OUT outer_block bytea) RETURNS record
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
COMMENT ON FUNCTION dispatch_private.new_secret() IS 'The two HMAC blocks of a fresh random key of 32 bytes.';

CREATE OR REPLACE FUNCTION dispatch.rotate_secrets() RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    made integer;
BEGIN
    -- Two rotations at once come one after the other. A lock of the table would wait for any login: nextval locks what it is given, before it asks for a right.
    PERFORM FROM dispatch_private.secrets FOR UPDATE;
    INSERT INTO dispatch_private.secrets (generation, start_inner, start_outer, run_inner, run_outer)
    SELECT coalesce((SELECT max(generation) FROM dispatch_private.secrets), 0) + 1,
           s.inner_block, s.outer_block, r.inner_block, r.outer_block
    FROM dispatch_private.new_secret() AS s, dispatch_private.new_secret() AS r
    RETURNING generation INTO made;
    DELETE FROM dispatch_private.secrets WHERE generation < made - 1;
    RETURN made;
END
$$;
COMMENT ON FUNCTION dispatch.rotate_secrets() IS 'New secrets; for the owner alone. Those of one rotation ago stay valid, so leave as long as a task may wait and run between two rotations.';

-- A start key is a UUID of two halves: created_at of its row in microseconds, and the first 8 bytes of an HMAC of id and
-- created_at. So it is checked without a look at the row: a wrong key leaves no trace of the row in what the server counts.
CREATE OR REPLACE FUNCTION dispatch_private.start_keys(id bigint, created_at timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
    SELECT encode(moment.bytes || substring(dispatch_private.hmac(s.start_inner, s.start_outer,
               convert_to('start', 'UTF8') || int8send(id) || moment.bytes) FOR 8), 'hex')::uuid
    FROM dispatch_private.secrets AS s, int8send((extract(epoch FROM created_at) * 1000000)::bigint) AS moment (bytes)
    ORDER BY s.generation DESC
$$;
COMMENT ON FUNCTION dispatch_private.start_keys(bigint, timestamp with time zone) IS 'The start keys of a row, the newest first; the dispatcher derives the first one, too.';

CREATE OR REPLACE FUNCTION dispatch_private.key_time(id bigint, start_key uuid) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    micros CONSTANT bigint := ('x' || left(replace(start_key::text, '-', ''), 16))::bit(64)::bigint;
    moment timestamptz;
BEGIN
    IF micros BETWEEN -2208988800000000 AND 253402300799999999 THEN -- the years 1900 to 9999
        moment := timestamptz '1970-01-01 UTC' + make_interval(secs => micros / 1000000) + (micros % 1000000) * interval '1 microsecond';
        IF start_key IN (SELECT dispatch_private.start_keys(id, moment)) THEN
            RETURN moment;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM dispatch_private.earlier_start_keys AS e
               WHERE (e.task_id, e.digest) = (key_time.id, dispatch_private.token_digest(start_key))) THEN
        RETURN (SELECT t.created_at FROM dispatch_private.tasks AS t WHERE t.id = key_time.id);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch_private.key_time(bigint, uuid) IS 'created_at of the row that a start key belongs to, by the newest secret or the one before, or by an earlier form of key; NULL: it is no key of this row.';

CREATE OR REPLACE FUNCTION dispatch_private.run_tokens(id bigint, attempt integer, launch integer, job_uid text, pod text) RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
    SELECT encode(substring(dispatch_private.hmac(s.run_inner, s.run_outer, convert_to('run', 'UTF8') || int8send(id)
                  || int4send(attempt) || int4send(launch) || dispatch_private.field(job_uid) || dispatch_private.field(pod)) FOR 16), 'hex')::uuid
    FROM dispatch_private.secrets AS s ORDER BY s.generation DESC
$$;
COMMENT ON FUNCTION dispatch_private.run_tokens(bigint, integer, integer, text, text) IS 'The tokens of a run, the newest first: the same Pod of the same Job gets the same ones.';

SELECT dispatch.rotate_secrets() WHERE NOT EXISTS (SELECT FROM dispatch_private.secrets);
