"""Real MariaDB servers, our server as a subprocess, and a misbehaving network, for tests.

Start at `fixtures` (what a test asks for) and docs/testing.md (how to run them).
"""
