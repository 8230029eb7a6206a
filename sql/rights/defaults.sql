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
