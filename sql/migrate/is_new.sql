-- Whether no migration was ever applied here.
SELECT to_regclass('dispatch.schema_version') IS NULL
