"""Writes docs/replica-behaviour.md: minutes, and it needs MariaDB 10.11 and 11.8."""

from __future__ import annotations

from .page import PAGE, measured, text

if __name__ == "__main__":
    PAGE.write_text(text(measured()), encoding="utf-8")
    print(f"written: {PAGE}")
