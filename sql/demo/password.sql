-- Sets the password of a login of the demo, for this session. $1 text login, $2 text password.
SELECT set_config('demo.password_' || $1, $2, false)
