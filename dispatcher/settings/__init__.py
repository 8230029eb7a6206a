"""Settings: each has one definition; all are read and checked together."""
