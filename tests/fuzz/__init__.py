"""Bytes that nobody means well by, for as long as one likes: `python -m tests.fuzz`. See README.md."""
