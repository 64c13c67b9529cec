"""Our server as a container, for projects that have theirs by testcontainers, in whatever language their server is.

with BinlogServerContainer() as server:
    server.sql("CREATE DATABASE shop")
    replica.follow(server)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final, Self

import pymysql
from docker.errors import NotFound
from testcontainers.core.container import DockerContainer

from binlog_server.testing.master import SMALL, TESTER, MasterClient, MasterConnection, Waiting
from binlog_server.testing.sql_server import Credentials, Row
from binlog_server.testing.waiting import until

IMAGE: Final = "binlog-server"
"""As docs/install.md builds it."""
PORT: Final = 3306
"""Inside the container."""
_VARIABLE: Final = "BINLOG_SERVER_"
_START_S: Final = 60.0


class _Client(MasterClient):
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


class BinlogServerContainer(DockerContainer):  # type: ignore[misc, unused-ignore]
    """A container of our image, with a small store of its own and an account that may do everything.

    Before `start` it takes whatever testcontainers have: `with_network`, `with_bind_ports`, `with_name`. The port on
    this machine is a free one unless `with_bind_ports(3306, ...)` says which, and changes with a restart.
    """

    def __init__(
        self, image: str = IMAGE, *, options: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """`options`: those of the configuration file (docs/options.md); `more`: those of `DockerContainer`."""
        super().__init__(image, **more)
        given = {**SMALL, "server_id": 1, "binlog_faults": True, **(options or {})}
        account = {"password": TESTER.password, "grants": ["ALL"]}
        given["users"] = {TESTER.user: account, **given.get("users", {})}
        if str(PORT) not in self.ports:
            self.with_exposed_ports(PORT)
        for name, value in given.items():
            self.with_env(
                _VARIABLE + name.upper(), value if isinstance(value, str) else _toml(value)
            )

    _refusal: Exception | None = None  # why the last login was none

    def start(self) -> Self:
        """Returns when it accepts logins. Raises with its log: `RuntimeError` if it ends instead, `TimeoutError`."""
        try:
            # Testcontainers wait for it to run, and one that ends at once may never have been seen to.
            with contextlib.suppress(TimeoutError):
                super().start()
            try:
                until(self.accepts_logins, f"logins at {self.image}", _START_S)
            except TimeoutError as error:
                raise TimeoutError(f"{error}: {self._refusal}\n{self.log()[-3000:]}") from None
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *arguments: Any, **named: Any) -> None:
        """Remove it; once more is no error: the end of a `with` that has not begun hid why it did not."""
        with contextlib.suppress(NotFound):
            super().stop(*arguments, **named)

    def accepts_logins(self) -> bool:
        """Whether it does, as after a restart. Raises `RuntimeError` with its log if it has ended."""
        self.reload()
        if self.status in ("exited", "dead"):
            raise RuntimeError(f"{self.image} has ended:\n{self.log()[-3000:]}")
        try:
            self.sql("SELECT 1")
        except (
            pymysql.Error,
            OSError,
        ) as error:  # it has no port any more if it has ended since `reload`
            self._refusal = error
            return False
        return True

    def log(self) -> str:
        """The lines that it has logged."""
        return bytes(self.get_wrapped_container().logs()).decode(errors="replace")

    # --- where it is: what a replica follows ---

    @property
    def host(self) -> str:
        """From this machine."""
        found = self.get_container_host_ip()
        return (
            "127.0.0.1" if found == "localhost" else str(found)
        )  # a name is ::1 first, and no port is there

    @property
    def port(self) -> int:
        """On this machine."""
        return int(self.get_exposed_port(PORT))

    @property
    def account(self) -> Credentials:
        """It may do everything."""
        return TESTER

    @property
    def url(self) -> str:
        """With the account in it: `mariadb://USER:PASSWORD@HOST:PORT`."""
        return self._client.url

    def get_connection_url(self) -> str:
        """As modules of testcontainers call it: `url`."""
        return self.url

    # --- as of every master: see `MasterClient` ---

    @property
    def _client(self) -> MasterClient:
        return _Client(self.host, self.port)

    def connect(self, **options: Any) -> Any:
        """A pymysql connection, which `with` closes; rows as dictionaries. `options`: those of `pymysql.connect`."""
        return self._client.connect(**options)

    def sql(self, text: str, *values: Any) -> list[Row]:
        """The rows of the last of one or several statements; `%s` stand for the values."""
        return self._client.sql(text, *values)

    @property
    def gtid_binlog_pos(self) -> str:
        """The end of its binlog."""
        return self._client.gtid_binlog_pos

    @property
    def connections(self) -> list[MasterConnection]:
        """All but the one that asks."""
        return self._client.connections

    def wait_for(
        self, replica: Waiting | int, gtid: str | None = None, timeout: float = 30.0
    ) -> None:
        """Until a replica has applied, or a client of that server_id was sent, all up to a GTID; see `MasterClient`."""
        self._client.wait_for(replica, gtid, timeout)


def _toml(value: Any) -> str:
    """As the variables of the environment have it: JSON writes all but tables the way TOML does."""
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)  # escaped pairs of surrogates are no TOML
    return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
