"""What people are told beside errors, and how a statement is shown in one."""

from __future__ import annotations

import logging
import warnings
from typing import Final

_log = logging.getLogger(__name__)

_SHOWN: Final = 200  # letters of a statement


def tell(text: str) -> None:
    """A warning, for those who look at a log and those who look at a screen."""
    _log.warning("%s", text)
    warnings.warn(text, stacklevel=3)


def shown(sql: str) -> str:
    """A statement for an error."""
    return sql if len(sql) <= _SHOWN else sql[:_SHOWN] + "..."
