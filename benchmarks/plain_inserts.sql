INSERT INTO public.plain (env, payload) VALUES ('{"INPUT": "s3://bucket/key"}', '{"n": 1}');
