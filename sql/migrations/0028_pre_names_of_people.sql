-- A login is known by the oid of its role: a name can change, and somebody else can get it. Rows keep the name that the login
-- had when it inserted its first one. So a login that is renamed keeps its rows, and a new login of an old name gets none.
CREATE TABLE submitters (
    name text PRIMARY KEY,
    role oid UNIQUE
);
COMMENT ON TABLE submitters IS 'Whose rows have which submitted_by. role NULL: a login that was gone before this table was made.';
DO $submitters$ -- each step reads one entry of the index
DECLARE
    one text := (SELECT min(submitted_by) FROM tasks);
BEGIN
    WHILE one IS NOT NULL LOOP
        INSERT INTO submitters VALUES (one, to_regrole(quote_ident(one)));
        one := (SELECT min(submitted_by) FROM tasks WHERE submitted_by > one);
    END LOOP;
END
$submitters$;

ALTER TABLE queues ADD COLUMN owner_oid oid, ADD COLUMN submit_oid oid;
UPDATE queues SET owner_oid = to_regrole(quote_ident(owner_role)), submit_oid = to_regrole(quote_ident(submit_role))
WHERE owner_role IS NOT NULL OR submit_role IS NOT NULL;
