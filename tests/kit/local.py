"""What tests take of `binlog_server.testing.local`."""

from binlog_server.testing.local import LocalMariaDB

__all__ = ["LocalMariaDB"]
