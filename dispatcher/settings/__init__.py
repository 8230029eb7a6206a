"""Settings: one definition each, read and checked together."""
