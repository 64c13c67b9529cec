"""A master for tests: a server of ours on a small store, in this process or in one of its own (`running.py`).

This is what a test calls. It imports no part of the server: a master in another process loads that there.

with running_master() as master:
    master.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, a TEXT)")
    gtid = master.rows("shop.t", [{"id": 1, "a": "x"}])
    replica.follow(master)
    master.wait_for(replica, gtid)
"""

from __future__ import annotations

import errno
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.sparse_copy import copy_sparse

from binlog_server.testing import ports, rundir
from binlog_server.testing.sql_server import Credentials, SqlServer, url
from binlog_server.testing.waiting import until

if TYPE_CHECKING:
    from binlog_server.testing.random_histories import RandomHistory
    from binlog_server.testing.replay import ReplayHandle
    from binlog_server.testing.served import Values

_SCENARIO_BYTES_MAX: Final = 16 << 20
SMALL: Final = {"max_binlog_size": 1 << 20, "innodb_log_file_size": 4 << 20}
"""Options by which a store takes 7 MiB: files are made in full size, one ahead."""
TESTER: Final = Credentials("tester", "tester-password")
"""The account of a master: it may do everything."""


class Waiting(Protocol):
    """A replica that knows how far it is; see `MariaDB`."""

    def wait_gtid(self, position: str, timeout: float = 30.0) -> None: ...


@dataclass(frozen=True)
class MasterConnection:
    """A client of a master. Of one that is sent the binlog: its `server_id`, and the GTID position that it was sent."""

    id: int
    user: str
    host: str
    command: str
    state: str
    server_id: int | None = None
    sent_gtid: str | None = None


class MasterClient(SqlServer):
    """A master by its port: SQL, and who is connected."""

    account = TESTER

    @property
    def url(self) -> str:
        """With the account in it: `mariadb://USER:PASSWORD@HOST:PORT`."""
        return url(self)

    def login(self) -> Mapping[str, Any]:
        """As the account that may do everything; pymysql says nothing of its own after the login."""
        return {
            "user": self.account.user,
            "password": self.account.password,
            "autocommit": None,
            "read_timeout": 60,
        }

    @property
    def connections(self) -> list[MasterConnection]:
        """All but the one that asks."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINLOG REPLICAS")
            replicas = {row["Connection_id"]: row for row in cursor.fetchall()}
            cursor.execute("SHOW PROCESSLIST")
            rows = [row for row in cursor.fetchall() if row["Id"] != connection.thread_id()]
        found = []
        for row in rows:
            replica = replicas.get(row["Id"], {})
            found.append(
                MasterConnection(
                    row["Id"],
                    row["User"],
                    row["Host"],
                    row["Command"],
                    row["State"] or "",
                    replica.get("Server_id"),
                    replica.get("Sent_gtid"),
                )
            )
        return found

    def wait_for(
        self, replica: Waiting | int, gtid: str | None = None, timeout: float = 30.0
    ) -> None:
        """Until the replica has applied everything up to a GTID or a position; by default all that is here.

        replica: a `MariaDB`; or the server_id of any client: then it is the client's being sent it that is waited for.

        Raises `TimeoutError`; `ReplicationStopped` at once with the replica's errors.
        """
        position = self.gtid_binlog_pos if gtid is None else gtid
        if not isinstance(replica, int):
            replica.wait_gtid(position, timeout)
            return
        wanted = SlavePosition.parse(position)

        def is_sent() -> bool:
            return any(
                one.server_id == replica and _reaches(one.sent_gtid, wanted)
                for one in self.connections
            )

        try:
            until(is_sent, f"{position} sent to server_id {replica}", timeout)
        except TimeoutError as error:
            there = {
                one.server_id: one.sent_gtid
                for one in self.connections
                if one.server_id is not None
            }
            raise TimeoutError(f"{error}; connected and sent: {there or 'nobody'}") from None


def _reaches(sent: str | None, wanted: SlavePosition) -> bool:
    if sent is None:
        return False
    there = SlavePosition.parse(sent)
    return all(
        (at := there.get(gtid.domain_id)) is not None and at.seq_no >= gtid.seq_no
        for gtid in wanted
    )


def _files(paths: Iterable[Path | str | Iterable[Path | str]]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if isinstance(path, bytes | bytearray):
            raise BadValue("files by their names, not bytes")
        found += [Path(path)] if isinstance(path, Path | str) else map(Path, path)
    return [path.absolute() for path in found]


class BinlogMaster(MasterClient, ABC):
    """A master of this test. Its store stays over `stop` and `start`, and goes with `discard`."""

    def __init__(self, *, directory: Path | str | None = None, **options: Any) -> None:
        """`directory`: given from outside it outlives this object. `options`: those of the configuration file."""
        self.port = ports.lease()
        self.dir = rundir.new_dir("master")
        self.directory = Path(directory or self.dir / "store")
        self.options: dict[str, Any] = {**SMALL, "server_id": 1, "binlog_faults": True, **options}
        """Of the next start: a test may change them while it is stopped."""
        self.name = f"binlog-master-{self.port}"
        # Over all its starts: a replay that has ended with one is none of the next.
        self._replays = count(1)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    # --- its life ---

    @abstractmethod
    def start(self) -> Self:
        """Returns when it accepts logins. Raises `ConfigError`, `StorageError`, `OSError`."""

    @abstractmethod
    def stop(self) -> None:
        """In order: what was committed is durable. Nothing if it does not run."""

    @abstractmethod
    def alive(self) -> bool:
        """Whether it runs."""

    def _stopped(self) -> RuntimeError:
        return RuntimeError(f"{self} does not run: start() starts it, on the same port and store")

    def restart(self) -> Self:
        """On the same port, with the same store."""
        self.stop()
        return self.start()

    def mark(self) -> Path:
        """A copy of its store as it is, for `go_back`. It restarts for that: its connections end."""
        self.stop()
        copy = rundir.new_dir("mark") / "store"
        shutil.copytree(self.directory, copy, copy_function=copy_sparse)
        self.start()
        return copy

    def go_back(self, mark: Path) -> Self:
        """Restart with the store as it was at `mark`, tables included: a crash has cost all that came later, or another
        server took over that never had it. What is logged now has GTIDs that were given away before."""
        self.stop()
        shutil.rmtree(self.directory)
        shutil.copytree(mark, self.directory, copy_function=copy_sparse)
        return self.start()

    def discard(self) -> None:
        """End it, and throw its data away."""
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
        ports.release(self.port)

    def log(self) -> str:
        """The lines that it has logged; empty where they go to the log of this process."""
        return ""

    def _all_options(self) -> dict[str, Any]:
        account = {"password": self.account.password, "grants": ["ALL"]}
        users = {self.account.user: account, **self.options.get("users", {})}
        return {
            **self.options,
            "listen_host": self.host,
            "listen_port": self.port,
            "users": users,
        }

    # --- what goes into its binlog, beside SQL ---

    @abstractmethod
    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a method of its `Served`."""

    def rows(
        self,
        table: str,
        insert: Iterable[Values] = (),
        *,
        update: Iterable[tuple[Values, Values]] = (),
        delete: Iterable[Values] = (),
        columns: Mapping[str, str] | None = None,
        keys: Sequence[str] = (),
    ) -> str:
        """Change rows in one transaction: row events. Returns its GTID; empty if nothing has changed.

        Args:
            table: `database.table`.
            update: for each, the values that a row has, and those that change.
            columns: the table is not here: events of this layout are logged as they are said, and the rows need not
                have been anywhere. Types by name, as CREATE TABLE has them. The first part of an update, and each of
                `delete`, is then a whole row; columns that are not named are NULL.
            keys: with `columns`: keys, as "PRIMARY KEY (a, b)".

        Raises `ServerError` as MariaDB would, `BadValue` for a value that is none of its column.
        """
        database, _, name = table.rpartition(".")
        if not (database and name):
            raise BadValue(f"{table!r} has no database: shop.{table}")
        rows = list(insert), list(update), list(delete)
        for row in [*rows[0], *[part for pair in rows[1] for part in pair], *rows[2]]:
            if not isinstance(row, Mapping):
                raise BadValue(
                    f"{row!r} is no row, such as {{'id': 1}}: values by the names of columns"
                )
        return str(self._call("rows", table, *rows, columns, list(keys)))

    def raw(
        self,
        given: Iterable[bytes] | Path | str,
        *,
        checksums: bool = False,
        check: bool = True,
    ) -> str:
        """Events as they are, or all groups of a binlog file, behind what is there. Returns the last GTID.

        Args:
            given: events, each with its header; or a file, traditional or .ibb. Without a GTID event in front, events
                are a transaction under the next number, with its XID event added.
            checksums: the events end in CRC-32.
            check: what no master could log is refused with `ProtocolError`. Otherwise all events are one group.
        """
        if isinstance(given, bytes | bytearray):
            raise BadValue("raw: events in a list, or the name of a file; not bytes")
        if isinstance(given, Path | str):
            return str(self._call("raw_files", [Path(given).absolute()]))
        return str(self._call("raw", list(given), checksums, check))

    def load(self, *paths: Path | str | Iterable[Path | str]) -> str:
        """Take the history of captured files: traditional ones, .ibb, or a directory of .ibb. Returns the position.

        An empty master begins where they do; any other must end where they go on. Raises `StorageError`, `OSError`.
        """
        return str(self._call("load", _files(paths)))

    def replay(
        self,
        *paths: Path | str | Iterable[Path | str],
        speed: float = 1.0,
        rate: float = 0,
        longest_gap: float = inf,
        loop: int = 1,
        fresh: bool = True,
    ) -> ReplayHandle:
        """Tell a captured history again, behind what is there, in the background. Files as of `load`.

        Args:
            speed: how many times as fast as it was recorded.
            rate: groups a second, whenever they were recorded.
            longest_gap: seconds that a pause of the recording becomes at most; 0: no pauses.
            loop: how often; 0 is until `stop`. Each round has the next numbers of its domains.
            fresh: the events say that they happen now, not then.

        Raises `StorageError`, `OSError`, `BadValue`.
        """
        pace = {"speed": speed, "rate": rate, "longest_gap": longest_gap}
        number = next(self._replays)
        self._call("start_replay", number, _files(paths), pace, loop, fresh)
        from binlog_server.testing.replay import ReplayHandle

        return ReplayHandle(self._call, number)

    def random(self, seed: int, **shape: Any) -> RandomHistory:
        """Log a history by chance, the same for the same seed, behind what is there; see `Shape` for what may be in it.

        Raises `BadValue`.
        """
        if not isinstance(seed, int):
            raise BadValue(f"{seed!r} is no whole number", "seed")
        # Generating takes a tenth of all that a first master imports.
        from binlog_server.testing.random_histories import random_history

        return self.tell(random_history(seed, **shape))

    def tell(self, history: RandomHistory) -> RandomHistory:
        """Log a history that was made before, behind what is there. Returns it with the numbers that its groups got."""
        domains = {group.gtid.domain_id for group in history.groups}
        told = history.behind({domain: self._call("last_seq_no", domain) for domain in domains})
        self._call("append", [(group.payload, group.gtid) for group in told.groups])
        return told

    # --- faults ---

    def fault(self, do: str, **where: Any) -> None:
        """Order a fault for who is there and who comes: `fault("cut", gtid="0-1-5")`; see docs/pytest.md.

        Raises `BadFault`.
        """
        self._call("order_faults", [{"do": do, **where}])

    def load_faults(self, scenario: Path | str) -> None:
        """Order the faults of a TOML file, all or none. Raises `BadFault`, `OSError`."""
        import tomllib

        from binlog_storage.disk.given_files import read_given_text

        from binlog_server.faults.faults import BadFault

        try:
            tables = tomllib.loads(read_given_text(scenario, _SCENARIO_BYTES_MAX))
        except (ValueError, RecursionError) as error:  # tomllib raises more than it says
            raise BadFault(f"{scenario}: {error}") from None
        except OSError as error:
            if error.errno != errno.EILSEQ:
                raise
            raise BadFault(f"{scenario}: {error.strerror}") from None
        faults = tables.pop("fault", None)
        if tables or not isinstance(faults, list):
            others = ", ".join(tables) or ("none" if faults is None else "a single one")
            raise BadFault(f"{scenario}: it has [[fault]] tables alone, not {others}")
        try:
            self._call("order_faults", faults)
        except BadFault as error:
            raise BadFault(f"{scenario}: {error}") from None

    def clear_faults(self) -> None:
        """None is met any more."""
        self._call("clear_faults")

    @property
    def faults_met(self) -> list[tuple[str, int]]:
        """What each fault does, and how often it was met, in the order in which they were ordered."""
        return list(self._call("faults_met"))
