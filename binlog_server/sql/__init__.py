"""SQL over the replication port: statements as values (`statements`, `parser`), and their answers (`answers`)."""
