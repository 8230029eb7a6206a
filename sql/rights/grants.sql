-- Every right on schema dispatch, on its objects, and on the database beyond those of every new database. Rights of owners are left out.
WITH held (kind, name, part, owner, acl) AS (
    SELECT 'schema', place.nspname::text, '', place.nspowner,
           COALESCE(place.nspacl, pg_catalog.acldefault('n', place.nspowner))
      FROM pg_catalog.pg_namespace AS place
     WHERE place.nspname = 'dispatch'
    UNION ALL
    SELECT 'relation', relation.relname::text, '', relation.relowner,
           COALESCE(relation.relacl,
                    pg_catalog.acldefault(CASE relation.relkind WHEN 'S' THEN 's'::"char" ELSE 'r'::"char" END,
                                          relation.relowner))
      FROM pg_catalog.pg_class AS relation
     WHERE relation.relnamespace = 'dispatch'::pg_catalog.regnamespace
       AND relation.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'relation', relation.relname::text, part.attname::text, relation.relowner, part.attacl
      FROM pg_catalog.pg_attribute AS part
      JOIN pg_catalog.pg_class AS relation ON relation.oid = part.attrelid
     WHERE relation.relnamespace = 'dispatch'::pg_catalog.regnamespace
       AND part.attacl IS NOT NULL AND NOT part.attisdropped
    UNION ALL
    SELECT 'function', pg_catalog.format('%s(%s)', routine.proname, pg_catalog.oidvectortypes(routine.proargtypes)), '',
           routine.proowner, COALESCE(routine.proacl, pg_catalog.acldefault('f', routine.proowner))
      FROM pg_catalog.pg_proc AS routine
     WHERE routine.pronamespace = 'dispatch'::pg_catalog.regnamespace
    UNION ALL
    SELECT 'type', kind.typname::text, '', kind.typowner,
           COALESCE(kind.typacl, pg_catalog.acldefault('T', kind.typowner))
      FROM pg_catalog.pg_type AS kind
      LEFT JOIN pg_catalog.pg_class AS relation ON relation.oid = kind.typrelid
     WHERE kind.typnamespace = 'dispatch'::pg_catalog.regnamespace AND kind.typcategory <> 'A'
       AND COALESCE(relation.relkind, 'c') = 'c'
), exploded AS (
    SELECT held.kind, held.name, held.part, held.owner, one.grantee, one.privilege_type, one.is_grantable
      FROM held, pg_catalog.aclexplode(held.acl) AS one
    UNION ALL
    (SELECT 'database', 'of this installation', '', own.datdba, one.grantee, one.privilege_type, one.is_grantable
       FROM pg_catalog.pg_database AS own,
            pg_catalog.aclexplode(COALESCE(own.datacl, pg_catalog.acldefault('d', own.datdba))) AS one
      WHERE own.datname = pg_catalog.current_database()
     EXCEPT
     SELECT 'database', 'of this installation', '', own.datdba, one.grantee, one.privilege_type, one.is_grantable
       FROM pg_catalog.pg_database AS own, pg_catalog.aclexplode(pg_catalog.acldefault('d', own.datdba)) AS one
      WHERE own.datname = pg_catalog.current_database())
)
SELECT exploded.kind, exploded.name, exploded.part,
       COALESCE(role.rolname::text, 'PUBLIC') AS grantee,
       exploded.privilege_type AS privilege,
       exploded.is_grantable AS grantable
  FROM exploded
  LEFT JOIN pg_catalog.pg_roles AS role ON role.oid = exploded.grantee
 WHERE exploded.grantee <> exploded.owner
