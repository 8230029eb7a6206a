INSERT INTO dispatch.tasks (env, payload) VALUES ('{"INPUT": "s3://bucket/key"}', '{"n": 1}');
