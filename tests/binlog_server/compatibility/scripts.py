"""Conversations of clients that were never recorded: written down from their source code.

The server that they meet has the groups of `HISTORY`. A step is a statement and what the client can go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from binlog_protocol.connection.commands import BinlogDump, DumpFlag, Query, RegisterSlave
from binlog_protocol.gtid import Gtid

from .answers import Answer
from .outcome import FIRST_FILE

HISTORY = (
    *(Gtid(0, 1, n) for n in range(1, 4)),
    Gtid(5, 1, 1),
    Gtid(7, 77, 1),
    Gtid(5, 1, 2),
    Gtid(0, 1, 4),
    Gtid(0, 1, 5),
)
ALL = tuple(map(str, HISTORY))
POSITION = "0-1-3,5-1-2,7-77-1"
BEHIND_POSITION = ("0-1-4", "0-1-5")


@dataclass(frozen=True)
class Expected:
    """What a client can go on with; `text` says it. `then`: what it does with the answer."""

    text: str
    check: Callable[[Answer], bool]
    then: str = ""


OK = Expected("OK", lambda answer: answer.kind == "ok")
ROW = Expected("one row", lambda answer: len(answer.rows) == 1)
ROWS = Expected("a result set", lambda answer: answer.kind == "rows")


def value(text: str) -> Expected:
    """One row with that value in its last column."""
    return Expected(f"a row with {text}", lambda a: [row[-1] for row in a.rows] == [text])


def any_of(*texts: str) -> Expected:
    """One row with one of these."""
    return Expected(" or ".join(texts), lambda a: len(a.rows) == 1 and a.rows[0][-1] in texts)


def ok_or(errno: int) -> Expected:
    """OK, or an error that the client ignores."""
    return Expected(f"OK or error {errno}", lambda a: a.kind == "ok" or a.errno == errno)


ENGINE_OR_UNKNOWN = Expected(
    "innodb, or error 1193", lambda a: a.errno == 1193 or [row[-1] for row in a.rows] == ["innodb"]
)

Step = tuple[str | bytes, Expected]


@dataclass(frozen=True)
class Script:
    """What a client says, and what has to come of it.

    features: rows of the page, the first is its name. `variant` tells scripts of the same feature apart.
    during_dump: a command that it sends while the stream runs.
    gets: GTIDs that come; `commits` without GTIDs, for clients that do not understand these.
    heartbeats: so many at least.
    ends: by EOF, not before.
    error: with which the dump is refused.
    engine_refuses: what the engine style says, which has no such stream; the classic style has it.
    """

    client: str
    features: tuple[str, ...]
    steps: tuple[Step, ...]
    dump: BinlogDump | None = None
    during_dump: bytes = b""
    gets: tuple[str, ...] = ()
    commits: int = 0
    heartbeats: int = 0
    until_reached: bool = False
    ends: bool = False
    error: int = 0
    engine_refuses: str = ""
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.client}: {self.features[0]} {self.variant}".strip()

    def requests(self) -> Iterable[tuple[bytes, Expected]]:
        for said, expected in self.steps:
            yield (Query(said).build() if isinstance(said, str) else said), expected


_GTID_NEEDED = "error 4246"
_STOPS_WITHOUT_GTID = "error 1236 Slave must enable GTID mode"  # a replica, which would come again
REGISTER = RegisterSlave(100, "replica", port=3306).build()
PING = b"\x0e"
DUMP = BinlogDump(100, DumpFlag.SEND_ANNOTATE_ROWS)

# -- MariaDB 12.3: what 11.8 says, and a question for the engine of the binlog -------------------------


@dataclass(frozen=True)
class Replica123:
    """The options of a replica that show on the wire."""

    position: str = ""
    strict: int = 0
    ignore_duplicates: int = 0
    heartbeat_ns: int = 30_000_001_024
    until: str | None = None
    before_gtids: int = 0
    skip_replication: bool = False
    semi_sync: bool = False
    reconnects: bool = False
    by_file: bool = False

    def steps(self) -> tuple[Step, ...]:
        position: list[Step] = [
            ("SELECT @@GLOBAL.gtid_domain_id", ROW),
            (f"SET @slave_connect_state='{self.position}'", OK),
            (f"SET @slave_gtid_strict_mode={self.strict}", OK),
            (f"SET @slave_gtid_ignore_duplicates={self.ignore_duplicates}", OK),
        ]
        if self.by_file:
            position = [("SELECT binlog_gtid_pos('binlog.000001',4)", Expected("anything", bool))]
        if self.until is not None:
            position += [
                (f"SET @slave_until_gtid='{self.until}'", OK),
                (f"SET @slave_gtid_until_before_gtids={self.before_gtids}", OK),
            ]
        heartbeat: list[Step] = [(f"SET @master_heartbeat_period= {self.heartbeat_ns}", OK)]
        skip: list[Step] = [("SET skip_replication=1", OK)]
        names: list[Step] = [("SET NAMES utf8mb4", OK)]
        semi_sync: list[Step] = [
            ("SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'", value("OFF")),
            ("SET @rpl_semi_sync_slave= 1", OK),
        ]
        return (
            *(names if self.reconnects else ()),
            ("SELECT UNIX_TIMESTAMP()", ROW),
            ("SHOW VARIABLES LIKE 'SERVER_ID'", value("1")),
            *(heartbeat if self.heartbeat_ns else ()),
            ("SET @master_binlog_checksum= @@global.binlog_checksum", OK),
            ("SELECT @master_binlog_checksum", any_of("NONE", "CRC32")),
            *(skip if self.skip_replication else ()),
            ("SELECT @@GLOBAL.binlog_storage_engine", ENGINE_OR_UNKNOWN),
            ("SET @mariadb_slave_capability=4", OK),
            *position,
            (REGISTER, OK),
            *(semi_sync if self.semi_sync else ()),
        )


def replica(options: Replica123, *features: str, **outcome: object) -> Script:
    """A 12.3 replica; `outcome` as in `Script`, all groups if nothing is said."""
    script = Script("12.3", features, options.steps(), DUMP, gets=ALL)
    return replace(script, **outcome)  # type: ignore[arg-type]


_R = Replica123
OF_12_3 = [
    replica(
        _R(),
        *("fresh", "parallel", "domain filters"),  # nothing of these shows on the wire
        *("engine style", "checksum NONE", "classic style", "checksum CRC32"),
    ),
    replica(_R(POSITION), "position", gets=BEHIND_POSITION),
    replica(_R("0-1-5,5-1-1,7-77-1"), "several domains", gets=("5-1-2",)),
    replica(_R(POSITION, strict=1), "strict mode", gets=BEHIND_POSITION),
    replica(_R("0-1-9,5-1-2,7-77-1", ignore_duplicates=1), "ignore duplicates", gets=()),
    replica(
        _R(POSITION, until="0-1-4,5-1-2,7-77-1"),
        "UNTIL",
        gets=("0-1-4",),
        until_reached=True,
        ends=True,
    ),
    replica(
        _R(POSITION, until="0-1-5,5-1-2,7-77-1", before_gtids=1),
        "SQL_BEFORE_GTIDS",
        gets=("0-1-4",),
        until_reached=True,
        ends=True,
    ),
    replica(_R(heartbeat_ns=100_000_000), "heartbeats", heartbeats=2),
    replica(_R(heartbeat_ns=0), "no heartbeats"),
    replica(_R(skip_replication=True), "FILTER_ON_MASTER"),
    replica(_R(semi_sync=True), "semi-sync"),
    replica(_R(POSITION, reconnects=True), "reconnect", gets=BEHIND_POSITION),
    replica(_R("0-1-99"), "refusals", gets=(), error=1236),
    replica(
        _R(by_file=True), "file and position", "classic by file", engine_refuses=_STOPS_WITHOUT_GTID
    ),
]

# -- clients of any version, by the protocol's own rules -----------------------------------------------


def _raw(feature: str, *steps: Step, also: tuple[str, ...] = (), **outcome: object) -> Script:
    script = Script("any client", (feature, *also), steps, DUMP, gets=ALL)
    return replace(script, **outcome)  # type: ignore[arg-type]


_CAPABLE: Step = ("SET @mariadb_slave_capability=4", OK)
_FRESH: Step = ("SET @slave_connect_state=''", OK)
_BY_FILE = BinlogDump(100, 0, FIRST_FILE, 4)
_NON_BLOCK = BinlogDump(0, DumpFlag.NON_BLOCK)

OF_ANY = [
    _raw("NON_BLOCK", _CAPABLE, _FRESH, dump=_NON_BLOCK, ends=True),
    _raw("checksum NONE", ("SET @master_binlog_checksum='NONE'", OK), _CAPABLE, _FRESH),
    _raw(
        "checksum CRC32",
        ("SET @master_binlog_checksum= @@global.binlog_checksum", OK),
        ("SELECT @master_binlog_checksum", value("CRC32")),
        _CAPABLE,
        _FRESH,
        engine_refuses="instead of a row with CRC32",
    ),
    *(
        _raw(
            "weaker capability",
            (f"SET @mariadb_slave_capability={n}", OK),
            dump=_BY_FILE,
            gets=(),
            commits=len(HISTORY),
            variant=f"{n}",
            engine_refuses=_GTID_NEEDED,
        )
        for n in (0, 1, 2, 3)
    ),
    _raw(
        "file and position",
        _CAPABLE,
        dump=_BY_FILE,
        also=("classic by file",),
        engine_refuses=_GTID_NEEDED,
    ),
]

# -- other programs ------------------------------------------------------------------------------------

GTID_DUMP_AT_0 = BinlogDump(100, 0, "", 0)

GO_MYSQL: tuple[Step, ...] = (
    ("SET NAMES utf8mb4", OK),
    ("KILL 4711", ok_or(1094)),
    ("SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'", ROW),
    ("SET @master_binlog_checksum='NONE', @source_binlog_checksum='NONE'", OK),
    ("SET @mariadb_slave_capability=4", OK),
    ("SET @master_heartbeat_period = 100000000, @source_heartbeat_period = 100000000", OK),
    ("SET @slave_uuid = 'c5fb8d3e', @replica_uuid = 'c5fb8d3e'", OK),
    (RegisterSlave(100, "canal", "repl", "", 0).build(), OK),
    (
        "SHOW VARIABLES WHERE Variable_name IN "
        "('rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')",
        value("OFF"),
    ),
    (f"SET @slave_connect_state='{POSITION}'", OK),
    ("SET @slave_gtid_strict_mode=1", OK),
)
JAVA: tuple[Step, ...] = (
    ("show global variables like 'binlog_checksum'", ROW),
    ("set @master_binlog_checksum= @@global.binlog_checksum", OK),
    ("select @@server_id", ROW),
    ("set @master_heartbeat_period=100000000", OK),
    ("set net_write_timeout=60", OK),
    ("set net_read_timeout=60", OK),
    ("SET @mariadb_slave_capability=4", OK),
    (f"SET @slave_connect_state = '{POSITION}'", OK),
    ("SET @slave_gtid_strict_mode = 0", OK),
    ("SET @slave_gtid_ignore_duplicates = 0", OK),
)
MAXSCALE: tuple[Step, ...] = (
    ("SET @master_heartbeat_period=1000000000", OK),
    ("SET @master_binlog_checksum = @@global.binlog_checksum", OK),
    ("SET @mariadb_slave_capability=4", OK),
    (f"SET @slave_connect_state='{POSITION}'", OK),
    ("SET @slave_gtid_strict_mode=1", OK),
    ("SET @slave_gtid_ignore_duplicates=1", OK),
    ("SET NAMES latin1", OK),
    (RegisterSlave(100, "maxscale", port=3306).build(), OK),
)
_STREAM = ("GTID stream",)

OF_PROGRAMS = [
    Script("go-mysql", _STREAM, GO_MYSQL, GTID_DUMP_AT_0, gets=BEHIND_POSITION, heartbeats=1),
    Script(
        "mysql-binlog-connector-java",
        ("GTID stream, COM_PING into the running dump",),
        JAVA,
        GTID_DUMP_AT_0,
        PING,
        BEHIND_POSITION,
        heartbeats=1,
    ),
    Script("MaxScale binlogrouter", _STREAM, MAXSCALE, DUMP, gets=BEHIND_POSITION),
]
