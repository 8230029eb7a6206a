-- Creates one login for each role of an installation, on a server that ends with the demo. A login here can run commands
-- as the demo's owner, so each login has its own random password. If a statement here fails, the log does not show them.
DO $logins$
DECLARE
    wanted record;
BEGIN
    PERFORM set_config('log_error_verbosity', 'terse', true);
    FOR wanted IN SELECT * FROM (VALUES ('demo', 'dispatch_submitter'), ('reader', 'dispatch_reader'),
        ('task', 'dispatch_task'), ('janitor', 'dispatch_janitor'), ('observer', 'dispatch_observer'),
        ('operator', 'dispatch_operator')) AS t (login, role)
    LOOP
        EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L IN ROLE %I',
                       wanted.login, current_setting('demo.password_' || wanted.login), wanted.role);
    END LOOP;
END
$logins$;
