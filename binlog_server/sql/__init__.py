"""SQL over the replication port: statements in families, each in one module, with their answers; see `parser`."""
