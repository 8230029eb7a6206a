"""Adapter to Postgres: the only importer of asyncpg. Every statement stands in `sql/`."""
