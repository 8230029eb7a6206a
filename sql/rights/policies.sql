-- Row security policies of schema dispatch.
SELECT relation.relname AS relation,
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
 WHERE relation.relnamespace = 'dispatch'::pg_catalog.regnamespace
