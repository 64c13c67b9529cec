"""Writes docs/compatibility.md."""

from __future__ import annotations

import logging

from .page import PAGE, write

if __name__ == "__main__":
    logging.disable()  # refusals are part of what is tried
    write()
    print(f"written: {PAGE}")
