"""What tests take of `binlog_server.testing.install`."""

from binlog_server.testing.install import Install, homes

__all__ = ["Install", "homes"]
