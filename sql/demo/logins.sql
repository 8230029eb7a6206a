-- One login per role of an installation, on a server that ends with the demo. Whoever can log in here runs commands as
-- the demo's owner, so their password is of chance.
DO $logins$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN SELECT * FROM (VALUES ('demo', 'dispatch_submitter'), ('reader', 'dispatch_reader'),
        ('task', 'dispatch_task'), ('janitor', 'dispatch_janitor'), ('observer', 'dispatch_observer')) AS t (login, role)
    LOOP
        EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L IN ROLE %I',
                       wanted.login, current_setting('demo.password'), wanted.role);
    END LOOP;
END
$logins$;
