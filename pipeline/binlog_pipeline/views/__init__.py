"""Views of a source: groups turned into rows. One file a view; `reading.py` chooses."""

from binlog_pipeline.views.reading import open_view
from binlog_pipeline.views.view import View

__all__ = ["View", "open_view"]
