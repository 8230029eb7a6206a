"""Adapter to Postgres, by asyncpg. All statements are in `sql/`."""
