"""A server that answers SQL on a port: how tests speak to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from binlog_protocol.dataclass import dataclass

from binlog_server.testing.waiting import POLL

Row = dict[str, Any]
"""A row of a result, by the names of its columns."""

_CONNECT_S: Final = 20


@dataclass(frozen=True)
class Credentials:
    """Who logs in."""

    user: str = "repl"
    password: str = "repl-password"


class Followed(Protocol):
    """A server that a replica can follow: a MariaDB, or ours."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def account(self) -> Credentials: ...


def url(source: Followed) -> str:
    """As `--upstream` of a server takes it."""
    account = source.account
    return f"mariadb://{account.user}:{account.password}@{source.host}:{source.port}"


class SqlServer:
    """`q`, `sql`, `script` and `value` log in anew each time: what is to hold for a session goes into one `connect`."""

    host = "127.0.0.1"
    port: int

    def login(self) -> Mapping[str, Any]:
        """Arguments of `pymysql.connect` that are this server's own: user and password at least."""
        raise NotImplementedError

    def connect(self, **options: Any) -> Any:
        """A pymysql connection, which `with` closes; rows as dictionaries. `options`: those of `pymysql.connect`."""
        # Loaded with the first one: a master whose client is the test's own needs none.
        import pymysql.cursors

        defaults = {
            "host": self.host,
            "port": self.port,
            "connect_timeout": _CONNECT_S,
            "ssl_disabled": True,  # pymysql loads all certificates of the machine otherwise: 40 ms
            "cursorclass": pymysql.cursors.DictCursor,
            **self.login(),
        }
        return pymysql.connect(**{**defaults, **options})

    def q(self, sql: str, *values: Any) -> list[Row]:
        """The rows of one statement; `%s` in it stand for the values."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def sql(self, text: str, *values: Any) -> list[Row]:
        """The rows of the last of one or several statements, with `;` between them; `%s` stand for the values.

        The mark that an editor has put in front of a file is no part of them, as the program `mariadb` has it.
        """
        from pymysql.constants import CLIENT  # as above

        with (
            self.connect(client_flag=CLIENT.MULTI_STATEMENTS) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(text.removeprefix("\ufeff"), values or None)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                rows = list(cursor.fetchall())
            return rows

    def script(self, *statements: str) -> None:
        """Several statements on one connection (session variables and transactions hold)."""
        with self.connect() as connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row; None if there is no row."""
        rows = self.q(sql, *values)
        return next(iter(rows[0].values())) if rows else None

    def wait(self, sql: str, ok: Callable[[list[Row]], Any], timeout: float = 30.0) -> list[Row]:
        """Repeat a query until `ok` likes its rows. A table that is not there yet, or a server that does not answer
        yet, is waited for as well. Raises `TimeoutError`."""
        import pymysql  # as above

        deadline = time.monotonic() + timeout
        while True:
            rows: list[Row] | str
            try:
                rows = self.q(sql)
                if ok(rows):
                    return rows
            except (pymysql.ProgrammingError, pymysql.OperationalError) as e:
                rows = str(e)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self}: {sql}: still {rows}")
            time.sleep(POLL)

    @property
    def gtid_binlog_pos(self) -> str:
        """The end of its binlog."""
        return str(self.value("SELECT @@GLOBAL.gtid_binlog_pos"))
