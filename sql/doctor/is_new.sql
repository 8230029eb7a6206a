-- Whether no migration was ever applied here. The login may lack every right on the schema.
SELECT NOT EXISTS (SELECT FROM pg_class AS relation JOIN pg_namespace AS place ON place.oid = relation.relnamespace
                    WHERE place.nspname = 'dispatch' AND relation.relname = 'schema_version')
