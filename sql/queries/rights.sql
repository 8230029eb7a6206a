-- The rights in the catalog, for docs/rights.md.

-- name: roles
-- The group roles: attributes, what they are members of, settings. $1 text[] names.
SELECT role.rolname AS name,
       pg_catalog.array_remove(ARRAY[
           CASE WHEN role.rolsuper THEN 'SUPERUSER' END,
           CASE WHEN role.rolcanlogin THEN 'LOGIN' END,
           CASE WHEN role.rolinherit THEN 'INHERIT' END,
           CASE WHEN role.rolcreaterole THEN 'CREATEROLE' END,
           CASE WHEN role.rolcreatedb THEN 'CREATEDB' END,
           CASE WHEN role.rolreplication THEN 'REPLICATION' END,
           CASE WHEN role.rolbypassrls THEN 'BYPASSRLS' END], NULL) AS attributes,
       ARRAY(SELECT pg_catalog.format('%s%s', outer_role.rolname, CASE WHEN membership.admin_option THEN ' (admin)' END)
               FROM pg_catalog.pg_auth_members AS membership
               JOIN pg_catalog.pg_roles AS outer_role ON outer_role.oid = membership.roleid
              WHERE membership.member = role.oid) AS member_of,
       ARRAY(SELECT setting
               FROM pg_catalog.pg_db_role_setting AS kept, pg_catalog.unnest(kept.setconfig) AS setting
              WHERE kept.setrole = role.oid) AS settings
  FROM pg_catalog.pg_roles AS role
 WHERE role.rolname = ANY ($1::text[])

-- name: relations
-- Tables, views and sequences of both schemas, with their columns in order.
SELECT pg_catalog.format('%s.%s', place.nspname, relation.relname) AS name,
       CASE relation.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
            WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'sequence' END AS kind,
       CASE WHEN relation.relforcerowsecurity AND relation.relrowsecurity THEN 'forced'
            WHEN relation.relrowsecurity THEN 'on' ELSE 'off' END AS row_security,
       ARRAY(SELECT part.attname::text
               FROM pg_catalog.pg_attribute AS part
              WHERE part.attrelid = relation.oid AND NOT part.attisdropped
                AND (part.attnum > 0 OR part.attacl IS NOT NULL)
              ORDER BY part.attnum) AS columns
  FROM pg_catalog.pg_class AS relation
  JOIN pg_catalog.pg_namespace AS place ON place.oid = relation.relnamespace
 WHERE place.nspname IN ('dispatch', 'dispatch_private') AND relation.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')

-- name: functions
-- Functions of both schemas: the role whose rights they use, and the schemas in which they find names.
SELECT pg_catalog.format('%s.%s(%s)', place.nspname, routine.proname, pg_catalog.oidvectortypes(routine.proargtypes)) AS signature,
       routine.prosecdef AS security_definer,
       routine.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype AS is_trigger,
       COALESCE(routine.proconfig, '{}') AS settings
  FROM pg_catalog.pg_proc AS routine
  JOIN pg_catalog.pg_namespace AS place ON place.oid = routine.pronamespace
 WHERE place.nspname IN ('dispatch', 'dispatch_private')

-- name: policies
-- Row security policies of both schemas.
SELECT pg_catalog.format('%s.%s', place.nspname, relation.relname) AS relation,
       policy.polname AS name,
       CASE policy.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
            ELSE 'every command' END AS command,
       policy.polpermissive AS permissive,
       ARRAY(SELECT COALESCE(role.rolname::text, 'PUBLIC')
               FROM pg_catalog.unnest(policy.polroles) AS holder
               LEFT JOIN pg_catalog.pg_roles AS role ON role.oid = holder) AS roles,
       COALESCE(pg_catalog.pg_get_expr(policy.polqual, policy.polrelid), '') AS visible,
       COALESCE(pg_catalog.pg_get_expr(policy.polwithcheck, policy.polrelid), '') AS writable
  FROM pg_catalog.pg_policy AS policy
  JOIN pg_catalog.pg_class AS relation ON relation.oid = policy.polrelid
  JOIN pg_catalog.pg_namespace AS place ON place.oid = relation.relnamespace
 WHERE place.nspname IN ('dispatch', 'dispatch_private')

-- name: grants
-- Every right on our schemas, on their objects, and on the database beyond those of every new database. Rights of owners are left out.
WITH place AS (
    SELECT own.oid, own.nspname::text AS name, own.nspowner AS owner, own.nspacl AS acl
      FROM pg_catalog.pg_namespace AS own
     WHERE own.nspname IN ('dispatch', 'dispatch_private')
), held (kind, name, part, owner, acl) AS (
    SELECT 'schema', place.name, '', place.owner, COALESCE(place.acl, pg_catalog.acldefault('n', place.owner))
      FROM place
    UNION ALL
    SELECT 'relation', pg_catalog.format('%s.%s', place.name, relation.relname), '', relation.relowner,
           COALESCE(relation.relacl,
                    pg_catalog.acldefault(CASE relation.relkind WHEN 'S' THEN 's'::"char" ELSE 'r'::"char" END,
                                          relation.relowner))
      FROM pg_catalog.pg_class AS relation
      JOIN place ON place.oid = relation.relnamespace
     WHERE relation.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'relation', pg_catalog.format('%s.%s', place.name, relation.relname), part.attname::text, relation.relowner,
           part.attacl
      FROM pg_catalog.pg_attribute AS part
      JOIN pg_catalog.pg_class AS relation ON relation.oid = part.attrelid
      JOIN place ON place.oid = relation.relnamespace
     WHERE part.attacl IS NOT NULL AND NOT part.attisdropped
    UNION ALL
    SELECT 'function',
           pg_catalog.format('%s.%s(%s)', place.name, routine.proname, pg_catalog.oidvectortypes(routine.proargtypes)), '',
           routine.proowner, COALESCE(routine.proacl, pg_catalog.acldefault('f', routine.proowner))
      FROM pg_catalog.pg_proc AS routine
      JOIN place ON place.oid = routine.pronamespace
    UNION ALL
    SELECT 'type', pg_catalog.format('%s.%s', place.name, kind.typname), '', kind.typowner,
           COALESCE(kind.typacl, pg_catalog.acldefault('T', kind.typowner))
      FROM pg_catalog.pg_type AS kind
      JOIN place ON place.oid = kind.typnamespace
      LEFT JOIN pg_catalog.pg_class AS relation ON relation.oid = kind.typrelid
     WHERE kind.typcategory <> 'A' AND COALESCE(relation.relkind, 'c') = 'c'
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

-- name: defaults
-- Default privileges of this database: rights that a role's new objects give to others.
SELECT role.rolname AS owner,
       COALESCE(place.nspname, 'every schema') AS place,
       CASE kept.defaclobjtype WHEN 'r' THEN 'tables' WHEN 'S' THEN 'sequences' WHEN 'f' THEN 'functions'
            WHEN 'T' THEN 'types' WHEN 'n' THEN 'schemas' ELSE 'large objects' END AS objects,
       ARRAY(SELECT pg_catalog.format('%s: %s', COALESCE(holder.rolname, 'PUBLIC'), one.privilege_type)
               FROM pg_catalog.aclexplode(kept.defaclacl) AS one
               LEFT JOIN pg_catalog.pg_roles AS holder ON holder.oid = one.grantee
              WHERE one.grantee <> kept.defaclrole) AS grants
  FROM pg_catalog.pg_default_acl AS kept
  JOIN pg_catalog.pg_roles AS role ON role.oid = kept.defaclrole
  LEFT JOIN pg_catalog.pg_namespace AS place ON place.oid = kept.defaclnamespace

-- name: others
-- Rights that the other statements miss: rights of the group roles outside of both schemas, and objects in them that dispatch_owner does not own. $1 text[] names.
SELECT pg_catalog.format('%s: %s %s', role.rolname,
                         CASE link.deptype WHEN 'o' THEN 'owns' WHEN 'r' THEN 'is named by' ELSE 'has rights on' END,
                         pg_catalog.pg_describe_object(link.classid, link.objid, link.objsubid)) AS what
  FROM pg_catalog.pg_shdepend AS link
  JOIN pg_catalog.pg_roles AS role ON role.oid = link.refobjid,
       pg_catalog.pg_identify_object(link.classid, link.objid, link.objsubid) AS object
 WHERE link.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
   AND role.rolname = ANY ($1::text[])
   AND (link.dbid = 0 OR link.dbid = (SELECT own.oid FROM pg_catalog.pg_database AS own
                                       WHERE own.datname = pg_catalog.current_database()))
   AND object.type NOT IN ('default acl', 'role membership')
   AND (object.schema IN ('dispatch', 'dispatch_private')) IS NOT TRUE
   AND object.identity NOT IN ('dispatch', 'dispatch_private')
   AND object.identity NOT LIKE '% on dispatch.%'
   AND object.identity NOT LIKE '% on dispatch\_private.%'
UNION
SELECT pg_catalog.format('%s: owns %s', role.rolname, found.what)
  FROM (SELECT relation.relowner, pg_catalog.format('relation %s.%s', place.nspname, relation.relname)
          FROM pg_catalog.pg_class AS relation
          JOIN pg_catalog.pg_namespace AS place ON place.oid = relation.relnamespace
         WHERE place.nspname IN ('dispatch', 'dispatch_private')
        UNION ALL
        SELECT routine.proowner, pg_catalog.format('function %s.%s', place.nspname, routine.proname)
          FROM pg_catalog.pg_proc AS routine
          JOIN pg_catalog.pg_namespace AS place ON place.oid = routine.pronamespace
         WHERE place.nspname IN ('dispatch', 'dispatch_private')
        UNION ALL
        SELECT place.nspowner, pg_catalog.format('schema %s', place.nspname)
          FROM pg_catalog.pg_namespace AS place
         WHERE place.nspname IN ('dispatch', 'dispatch_private')) AS found (owner, what)
  JOIN pg_catalog.pg_roles AS role ON role.oid = found.owner
 WHERE role.rolname <> 'dispatch_owner'
