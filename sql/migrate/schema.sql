-- Creates the schema, before its first table.
CREATE SCHEMA IF NOT EXISTS dispatch AUTHORIZATION dispatch_owner
