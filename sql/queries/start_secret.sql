-- The secret that start keys are derived from, as the two blocks of an HMAC key.
SELECT start_inner, start_outer FROM dispatch.secrets ORDER BY generation DESC LIMIT 1
