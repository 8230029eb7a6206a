"""Adapter to Prometheus. Only this folder calls its HTTP API."""
