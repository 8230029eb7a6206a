-- Rights that the other statements miss: rights of the group roles outside schema dispatch, and objects in it that dispatch_owner does not own. $1 text[] names.
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
   AND object.schema IS DISTINCT FROM 'dispatch'
   AND object.identity <> 'dispatch'
   AND object.identity NOT LIKE '% on dispatch.%'
UNION
SELECT pg_catalog.format('%s: owns %s', role.rolname, found.what)
  FROM (SELECT relation.relowner, pg_catalog.format('relation %s', relation.relname)
          FROM pg_catalog.pg_class AS relation
         WHERE relation.relnamespace = 'dispatch'::pg_catalog.regnamespace
        UNION ALL
        SELECT routine.proowner, pg_catalog.format('function %s', routine.proname)
          FROM pg_catalog.pg_proc AS routine
         WHERE routine.pronamespace = 'dispatch'::pg_catalog.regnamespace
        UNION ALL
        SELECT place.nspowner, 'schema dispatch'
          FROM pg_catalog.pg_namespace AS place
         WHERE place.nspname = 'dispatch') AS found (owner, what)
  JOIN pg_catalog.pg_roles AS role ON role.oid = found.owner
 WHERE role.rolname <> 'dispatch_owner'
