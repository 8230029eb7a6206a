-- The password of all logins of the demo, for this session. $1 text.
SELECT set_config('demo.password', $1, false)
