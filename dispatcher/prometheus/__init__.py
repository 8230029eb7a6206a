"""Adapter of Prometheus: the only importer of its HTTP API."""
