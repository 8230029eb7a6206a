-- Whether this login may run roles.sql.
SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user
