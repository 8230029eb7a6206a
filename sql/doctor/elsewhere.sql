-- Objects that the login owns in this database, and rights that were granted to it by name outside of schema dispatch.
SELECT format('%s %s', CASE link.deptype WHEN 'o' THEN 'owns' ELSE 'has rights on' END,
              pg_describe_object(link.classid, link.objid, link.objsubid)) AS what
FROM pg_shdepend AS link, pg_identify_object(link.classid, link.objid, link.objsubid) AS object
WHERE link.refclassid = 'pg_authid'::regclass AND link.refobjid = session_user::regrole
  AND link.deptype IN ('o', 'a')
  AND (link.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
       OR link.dbid = 0 AND link.deptype = 'o')
  AND (link.deptype = 'o' OR object.schema IS DISTINCT FROM 'dispatch' AND object.identity <> 'dispatch'
                             AND object.identity NOT LIKE '% on dispatch.%')
ORDER BY 1
