-- The demo's own database.
CREATE DATABASE demo
