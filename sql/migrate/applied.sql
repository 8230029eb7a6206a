-- What was applied.
SELECT version, name, checksum FROM dispatch.schema_version
