"""What tests take of `binlog_server.testing.waiting`."""

from binlog_server.testing.waiting import POLL, until

__all__ = ["POLL", "until"]
