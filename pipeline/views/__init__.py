"""What is seen of a source: groups turned into rows. One file a view; `opening.py` chooses."""

from pipeline.views.opening import open_view
from pipeline.views.view import View

__all__ = ["View", "open_view"]
