"""Writes docs/rights.md."""

from __future__ import annotations

from .page import PAGE, text

if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"written: {PAGE}")
