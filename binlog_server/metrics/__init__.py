"""Monitoring: Prometheus metrics and health, over a small HTTP listener of its own."""
