-- The templates that rows may name, and what each lets rows set. The janitor keeps the table in step with its templates, so
-- that an INSERT is refused by the rules that a launch is judged by. While the table is empty, no row is refused by it.

CREATE TABLE dispatch.templates (
    name        text PRIMARY KEY,
    row_may_set text[],
    bounds      jsonb  NOT NULL DEFAULT '{}',
    images      text[] NOT NULL DEFAULT '{}',
    machines    text[] NOT NULL DEFAULT '{}',
    sets        text[] NOT NULL DEFAULT '{}',
    note        text   NOT NULL DEFAULT ''
);
COMMENT ON TABLE dispatch.templates IS 'The templates that rows may name. The janitor writes it, from the files of the dispatcher; a change by hand lasts seconds.';
COMMENT ON COLUMN dispatch.templates.name IS 'What tasks.template says.';
COMMENT ON COLUMN dispatch.templates.row_may_set IS 'What rows may set: fields of spec, `env` (every name that is not closed or in `sets`), env.NAME. NULL: the template has a fault, see note; its rows wait.';
COMMENT ON COLUMN dispatch.templates.bounds IS 'Most cpu and memory of spec, and most seconds of timeout_seconds.';
COMMENT ON COLUMN dispatch.templates.images IS 'Patterns of the images that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.machines IS 'Patterns of the machines that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.sets IS 'Variables that the template or the installation sets. Rows may set them only where row_may_set has env.NAME.';
COMMENT ON COLUMN dispatch.templates.note IS 'For people: the description in the template, or its fault.';

CREATE FUNCTION dispatch.janitor_templates(offered jsonb, are_all boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    written integer;
    deleted integer := 0;
BEGIN
    IF jsonb_typeof(offered) IS DISTINCT FROM 'array' OR octet_length(offered::text) > 4194304 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'templates are an array of at most 4 MiB';
    END IF;
    INSERT INTO dispatch.templates AS t (name, row_may_set, bounds, images, machines, sets, note)
    SELECT left(one.name, 63), one.row_may_set, coalesce(one.bounds, '{}'), coalesce(one.images, '{}'),
           coalesce(one.machines, '{}'), coalesce(one.sets, '{}'), left(coalesce(one.note, ''), 1000)
    FROM jsonb_to_recordset(offered) AS one (name text, row_may_set text[], bounds jsonb, images text[], machines text[], sets text[], note text)
    ORDER BY one.name -- two janitors lock the rows in the same order
    ON CONFLICT (name) DO UPDATE SET (row_may_set, bounds, images, machines, sets, note) =
        (excluded.row_may_set, excluded.bounds, excluded.images, excluded.machines, excluded.sets, excluded.note)
    WHERE (t.row_may_set, t.bounds, t.images, t.machines, t.sets, t.note) IS DISTINCT FROM
        (excluded.row_may_set, excluded.bounds, excluded.images, excluded.machines, excluded.sets, excluded.note);
    GET DIAGNOSTICS written = ROW_COUNT;
    IF are_all THEN
        DELETE FROM dispatch.templates WHERE NOT EXISTS (
            SELECT FROM jsonb_array_elements(offered) AS one WHERE one ->> 'name' = templates.name);
        GET DIAGNOSTICS deleted = ROW_COUNT;
    END IF;
    RETURN written + deleted;
END
$$;
COMMENT ON FUNCTION dispatch.janitor_templates IS 'Brings the table templates in step: [{name, row_may_set, bounds, images, machines, sets, note}]. are_all: others are deleted. Number of changed rows.';

REVOKE EXECUTE ON FUNCTION dispatch.janitor_templates(jsonb, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION dispatch.janitor_templates(jsonb, boolean) TO dispatch_janitor;
GRANT SELECT ON dispatch.templates TO dispatch_reader, dispatch_submitter, dispatch_operator, dispatch_observer;

-- Submitters see the queues that they may insert into, and the defaults.
GRANT SELECT ON dispatch.queues TO dispatch_submitter;
ALTER TABLE dispatch.queues ENABLE ROW LEVEL SECURITY;
CREATE POLICY queues_of_programs ON dispatch.queues FOR SELECT TO dispatch_reader, dispatch_janitor, dispatch_observer USING (true);
CREATE POLICY queues_of_operators ON dispatch.queues TO dispatch_operator USING (true) WITH CHECK (true);
CREATE POLICY open_queues ON dispatch.queues FOR SELECT TO dispatch_submitter
    USING (name = '*' OR name = ANY (ARRAY(SELECT dispatch.open_queues())));
