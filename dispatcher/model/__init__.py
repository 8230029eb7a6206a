"""Nouns of all stages: tasks, Jobs, the cluster, verdicts. Everything here is frozen and pure."""
