-- A dump holds the oid of a role as a number, and on another server that number is another role, or none. It holds a regrole as
-- the name. So the rows and queues of a login are its own after a restore too. pg_upgrade keeps oids, and takes regrole.
UPDATE submitters AS s SET role = NULL WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = s.role);
ALTER TABLE submitters ALTER COLUMN role TYPE regrole;
ALTER TABLE queues ALTER COLUMN owner_oid TYPE regrole, ALTER COLUMN submit_oid TYPE regrole;
COMMENT ON TABLE submitters IS 'Whose rows have which submitted_by. role NULL: a login that is gone.';
