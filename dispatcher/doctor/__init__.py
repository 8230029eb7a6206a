"""`dispatcher doctor` judges an installation. `look_at_…` read facts. The other files judge them, and are pure."""
