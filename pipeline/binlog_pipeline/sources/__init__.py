"""Sources of groups: a directory of .ibb files, a running server, an archive. See `source.py`."""

from binlog_pipeline.sources.source import Feed, LogSource, Slice

__all__ = ["Feed", "Slice", "LogSource"]
