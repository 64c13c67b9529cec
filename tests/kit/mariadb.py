"""What tests take of `binlog_server.testing.mariadb`, under shorter names."""

from binlog_server.testing.mariadb import UPSTREAM, MariaDB, ReplicationStopped
from binlog_server.testing.sql_server import Credentials as Account
from binlog_server.testing.sql_server import Followed as Source
from binlog_server.testing.sql_server import Row

__all__ = ["UPSTREAM", "Account", "MariaDB", "ReplicationStopped", "Row", "Source"]
