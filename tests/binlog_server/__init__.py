"""Fast tests of `binlog_server`: no MariaDB, no disk where memory will do, no waiting by the clock."""
