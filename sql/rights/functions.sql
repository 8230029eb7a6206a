-- Functions of schema dispatch: the role whose rights they use, and the schemas in which they find names.
SELECT pg_catalog.format('%s(%s)', routine.proname, pg_catalog.oidvectortypes(routine.proargtypes)) AS signature,
       routine.prosecdef AS security_definer,
       routine.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype AS is_trigger,
       COALESCE(routine.proconfig, '{}') AS settings
  FROM pg_catalog.pg_proc AS routine
 WHERE routine.pronamespace = 'dispatch'::pg_catalog.regnamespace
