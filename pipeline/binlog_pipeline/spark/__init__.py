"""The PySpark data source. Everything else of the pipeline works without Spark."""
