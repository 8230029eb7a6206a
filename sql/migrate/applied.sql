-- Applied migrations.
SELECT version, name, checksum FROM dispatch.schema_version
