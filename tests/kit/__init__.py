"""Real MariaDB servers, our server as a subprocess, and a misbehaving network, for tests.

Start at `fixtures` (what a test asks for) and docs/testing.md (how to run them). What users of the project have for
their tests, too, is in `binlog_server.testing`, and taken from there.
"""

from binlog_server.testing import ports, process, rundir

__all__ = ["ports", "process", "rundir"]
