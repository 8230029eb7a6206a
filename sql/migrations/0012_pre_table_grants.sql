-- Rows hold no secret, so submitters and operators may read whole rows: `SELECT *` and `INSERT … RETURNING *` work. Our
-- programs keep rights on named columns, because none of them needs a payload.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dispatch FROM PUBLIC;

REVOKE SELECT ON dispatch.tasks FROM dispatch_submitter;
GRANT SELECT ON dispatch.tasks TO dispatch_submitter, dispatch_operator;
CREATE POLICY rows_of_operators ON dispatch.tasks FOR SELECT TO dispatch_operator USING (true);

-- Creates the policies again, so that their functions are found by schema.
DROP POLICY own_rows ON dispatch.tasks;
CREATE POLICY own_rows ON dispatch.tasks FOR SELECT TO dispatch_submitter
    USING (submitted_by = session_user OR queue = ANY (ARRAY(SELECT dispatch.owned_queues())));

-- The dispatcher derives start keys as the functions do. Only the functions make run tokens.
GRANT SELECT (generation, start_inner, start_outer) ON dispatch.secrets TO dispatch_reader;
GRANT SELECT (run_digest) ON dispatch.tasks TO dispatch_janitor;
GRANT EXECUTE ON FUNCTION dispatch.janitor_return(bigint, integer, integer, bytea, integer, text),
    dispatch.janitor_cancel(bigint, integer, bytea) TO dispatch_janitor;
