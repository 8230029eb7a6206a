-- Creates the demo's own database.
CREATE DATABASE demo
