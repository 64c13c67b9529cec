"""Stores looked at without a server: never writes, never locks, names what is damaged."""
