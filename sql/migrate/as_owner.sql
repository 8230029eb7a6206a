-- Objects belong to the owner role, whoever migrates; names are looked up in our schema alone.
SET LOCAL ROLE dispatch_owner;
SET LOCAL search_path = dispatch, pg_temp
