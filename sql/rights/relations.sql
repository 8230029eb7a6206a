-- Tables, views and sequences of schema dispatch, with their columns in order.
SELECT relation.relname AS name,
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
 WHERE relation.relnamespace = 'dispatch'::pg_catalog.regnamespace AND relation.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
