"""Our server as a subprocess, failing disks and a misbehaving network, for tests.

Start at `fixtures` (what a test asks for) and docs/testing.md (how to run them). What users of the project have for
their tests, too (real MariaDB servers, ports, waiting), is in `binlog_server.testing`, and taken from there.
"""
