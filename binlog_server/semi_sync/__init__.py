"""Semi-synchronous replication: as a master, and as a replica of an upstream."""
