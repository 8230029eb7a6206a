-- What every login may ask of the server: itself, versions, limits and use of connections, the queue of notifications. A client session of any login counts.
SELECT current_database()::text AS database, session_user::text AS login,
       current_setting('server_version_num')::int AS version, current_setting('search_path') AS search_path,
       pg_notification_queue_usage() AS queue_usage, clock_timestamp() AS now,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS most_of_server,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int AS used_of_server,
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS most_of_database,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND datname = current_database())::int AS used_of_database,
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user) AS most_of_login,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND usename = session_user)::int AS used_of_login
