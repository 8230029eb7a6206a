-- Functions of schema dispatch: whether each runs with the rights of its owner, and its settings.
SELECT format('%s(%s)', proname, oidvectortypes(proargtypes)) AS signature, prosecdef AS is_definer,
       coalesce(proconfig, '{}') AS settings
FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'dispatch')
ORDER BY 1
