"""PySpark data source and jobs (not begun; see README.md in this folder)."""
