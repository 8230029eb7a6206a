-- Records an applied file. $1 int version, $2 text name, $3 text checksum.
INSERT INTO dispatch.schema_version (version, name, checksum, database_id)
VALUES ($1, $2, $3, coalesce((SELECT database_id FROM dispatch.schema_version LIMIT 1), gen_random_uuid()))
