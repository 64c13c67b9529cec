"""Groups of a running server, by the protocol that replicas speak. `pipeline/sources/server.py` is the source."""
