"""Groups of a running server, by the protocol of replicas. `binlog_pipeline/sources/server.py` is the source."""
