"""The configuration read again while the server runs: SIGHUP, RELOAD CONFIGURATION.

What has changed in it since it was read last is put to use, and connections stay as they are:

    [users]                                accounts, from the next login on; limits of their replicas at once
    ssl_cert, ssl_key, ssl_ca, tls_version, metrics_ssl, metrics_ssl_ca
                                           for connections from now on; the files are read anew in any case
    log_level, metrics_token               at once
    what SET GLOBAL can change             as SET GLOBAL does; what that has changed stays where the file says the same
    everything else                        is told: it needs a restart

All of it is read and checked before anything changes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors import ReadOnlyVariable, ServerError, UnknownServerError
from binlog_storage.console.output import shortened

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.loop.apart import apart
from binlog_server.loop.shielded import shielded
from binlog_server.settings.config import Config, ConfigError
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import Work

if TYPE_CHECKING:
    from binlog_server.app.app import Server

log = logging.getLogger(__name__)

_TLS: Final = ("ssl_cert", "ssl_key", "ssl_ca", "tls_version", "metrics_ssl", "metrics_ssl_ca")
_ACCOUNTS: Final = "users"
_LOG_LEVEL: Final = "log_level"
_TOKEN: Final = "metrics_token"
_DAYS, _SECONDS = "expire_logs_days", "binlog_expire_logs_seconds"  # one limit, in two units
_WHO: Final = "the configuration"


class Reload:
    """Reads the configuration of a server again. For one event loop.

    Args:
        first: as it was read at the start.
        read: reads it, in a thread. Raises `ConfigError`, `OSError`.
    """

    def __init__(self, server: Server, first: Config, read: Callable[[], Config]) -> None:
        self._server = server
        self._read = read
        # As it was read last; of options that could not be put to use, the value that holds.
        self._last = _values(first)
        self._one = asyncio.Lock()
        self._soon: set[asyncio.Task[None]] = set()
        self.begun: Callable[[], None] = lambda: None
        self.over: Callable[[], None] = lambda: None

    def soon(self) -> None:
        """`run`, without anybody who waits: the log tells what becomes of it."""
        if len(self._soon) > 1:
            return  # the one that waits for its turn has not read anything yet
        task = asyncio.get_running_loop().create_task(self._logged())
        self._soon.add(task)
        task.add_done_callback(self._soon.discard)

    def close(self) -> None:
        """The server ends."""
        for task in self._soon:
            task.cancel()

    async def _logged(self) -> None:
        try:
            await self.run()
        except ServerError as error:
            log.error("%s", error.message)
        except Exception:  # a mistake of ours: nobody else would hear of it
            log.exception("the configuration could not be read again")

    async def run(self) -> list[ServerError]:
        """See `ServerView.reload_configuration`."""
        async with self._one:
            self.begun()
            try:
                return await self._run()
            finally:
                self.over()

    async def _run(self) -> list[ServerError]:
        server = self._server
        try:
            found = await apart(self, self._read)
            changed = {name for name, value in _values(found).items() if value != self._last[name]}
            use_tls = await self._renewed_tls(changed, found)
        except (ConfigError, OSError) as error:
            text = f"the configuration was not read again, nothing has changed: {shortened(str(error))}"
            raise UnknownServerError(text) from None
        if _ACCOUNTS in changed:
            for account in server.users.configure(found.users):
                server.connections.set_policy(account.name, account.replica)
        if use_tls is not None:
            use_tls()
        names = (_LOG_LEVEL, _TOKEN, *(_TLS if server.tls is not None else ()))
        kept = {name: getattr(found, name) for name in names}
        server.config = dataclasses.replace(server.config, **kept)
        refused = await self._set_options(changed - {_ACCOUNTS, *names}, found)
        self._last = {
            name: self._last[name] if name in refused else value
            for name, value in _values(found).items()
        }
        done = ", ".join(sorted(changed - refused.keys())) or "nothing"
        log.info("the configuration was read again. Changed: %(changed)s", {"changed": done})
        for name, why in refused.items():
            log.warning("%s has changed, and stays as it was: %s", name, why.message)
        if _LOG_LEVEL in changed:
            logging.getLogger().setLevel(found.log_level)
        return list(refused.values())

    async def _renewed_tls(self, changed: set[str], found: Config) -> Callable[[], None] | None:
        """What puts the certificate to use, read anew; None where there is none to be read."""
        server = self._server
        if server.tls is None or not (found.ssl_cert or changed & {*_TLS}):
            return None  # one that the server has made stays: clients may have seen it
        return await apart(self, lambda: server.renewed_tls(found))

    async def _set_options(self, names: Iterable[str], found: Config) -> dict[str, ServerError]:
        """Set options as SET GLOBAL does. Returns those that stay as they were."""
        session = SqlSession(self._server, 0, _WHO, grants=frozenset({ALL_PRIVILEGES}))
        refused: dict[str, ServerError] = {}
        try:
            for name in sorted(names):
                try:
                    await self._set(session, name, found)
                except ServerError as error:
                    refused[name] = error
        finally:
            session.forget()
        return refused

    async def _set(self, session: SqlSession, name: str, found: Config) -> None:
        name = _SECONDS if name == _DAYS else name
        variable = VARIABLES.get(name)
        if variable is None or variable.set_global is None:
            raise ReadOnlyVariable(name)
        value: Any = found.expire_s if name == _SECONDS else getattr(found, name)
        text = variable.global_default(session) if value is None else variable.kind.text(value)
        variable.check_global(session, text)
        left = variable.apply(session, text)
        if isinstance(left, Work):
            try:
                await shielded(self._server.runner.begin(left))
            except asyncio.CancelledError:
                left.give_up()
                raise


def _values(config: Config) -> dict[str, Any]:
    """By name."""
    return {f.name: getattr(config, f.name) for f in fields(Config)}
