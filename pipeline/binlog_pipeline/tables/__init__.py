"""Tables as they are, or were: base and changes folded, kept as Parquet or Delta."""
