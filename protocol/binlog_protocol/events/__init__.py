"""Replication events: one module per format."""
