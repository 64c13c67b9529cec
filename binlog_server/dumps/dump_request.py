"""The request for a dump: from the client's session variables and its dump command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from decimal import Decimal
from typing import Final, NamedTuple

from binlog_protocol.connection.commands import BinlogDump, BinlogDumpGtid
from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.target import HistoryEnd, NamedTarget
from binlog_protocol.dump.weaker_clients import SlaveCapability
from binlog_protocol.errors import EngineBinlogNeedsGtid, MasterFatalError
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.limits import GTID_LIST_BYTES_MAX

from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.dumps.frame_style import FrameStyle, shared, style_in
from binlog_server.process.logs import shortened

_NS: Final = 1_000_000_000
_HEARTBEAT_NS_MIN: Final = 1_000_000
_HEARTBEAT_NS_MAX: Final = 4_294_967 * _NS  # as CHANGE MASTER allows
_USE_GTID: Final = "CHANGE MASTER TO MASTER_USE_GTID=slave_pos"

UserVariables = Mapping[str, str | int | Decimal | None]


class FilePosition(NamedTuple):
    """The start of a dump for a client without GTID. An empty `file` is the first one."""

    file: str
    position: int


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """A replica's request. `file_position` is None with GTID; without, `position` is empty.

    last_file: with GTID, the file that a replica has read before, whoever has sent it; empty of others.
    engine_file: the name of the one file of an engine style, for a client that is no replica and has named one:
        mariadb-binlog reads the file alone that it has asked for. Empty: any.
    target, stops: the end of the history for its login, see `HistoryEnd`; whether the stream ends there, with an error.
    as_in_files: it knows checksums, and so gets those of traditional files, whatever it has asked for: as from MariaDB.
    """

    server_id: int
    position: SlavePosition
    file_position: FilePosition | None
    until: SlavePosition | None
    until_before_gtids: bool
    strict_mode: bool
    ignore_duplicates: bool
    heartbeat_s: float
    style: FrameStyle
    non_block: bool
    as_in_files: bool = False
    last_file: str = ""
    engine_file: str = ""
    target: HistoryEnd | None = None
    stops: bool = False

    @classmethod
    def of(
        cls,
        command: BinlogDump,
        variables: UserVariables,
        *,
        skip_marked: bool,
        coordinates: Coordinates = AS_STORED,
        registered: bool = True,
        named: NamedTarget | None = None,
        zone: tzinfo | None = None,
    ) -> DumpRequest:
        """`coordinates`: the session's, by which it gets its style of stream. `registered`: COM_REGISTER_SLAVE came
        before. `named`: the target in the name of its login, `zone`: of its time.

        Raises `ServerError`: 4246 without a GTID position, where only that will do, and 1236 with its text for a
        replica, which would come again and again after any other; 1941 or 1943 for a malformed one; 1236.
        """
        style = style_in(coordinates)
        text = variables.get("slave_connect_state")
        file_position = None
        capability = _integer(variables, "mariadb_slave_capability")
        if isinstance(command, BinlogDumpGtid):
            position = command.position_of()
            capability = SlaveCapability.GTID
        elif text is not None:
            position = _position(str(text))
            if capability < SlaveCapability.GTID:
                raise MasterFatalError(
                    "This server sends GTID events, which the slave does not understand; "
                    "it must say SET @mariadb_slave_capability=4"
                )
        elif style.by_files:
            position = SlavePosition()
            file_position = FilePosition(command.file, command.position)
        elif registered:
            raise MasterFatalError(f"{EngineBinlogNeedsGtid().message}: {_USE_GTID}")
        else:
            raise EngineBinlogNeedsGtid()
        until = None if file_position else variables.get("slave_until_gtid")
        return cls(
            server_id=command.server_id,
            position=position,
            file_position=file_position,
            until=None if until is None else _position(str(until)),
            until_before_gtids=bool(_integer(variables, "slave_gtid_until_before_gtids")),
            strict_mode=bool(_integer(variables, "slave_gtid_strict_mode")),
            ignore_duplicates=bool(_integer(variables, "slave_gtid_ignore_duplicates")),
            heartbeat_s=_heartbeat_s(_integer(variables, "master_heartbeat_period")),
            style=shared(
                style,
                annotate=command.annotate,
                skip_marked=skip_marked,
                checksum=_wants_checksum(variables),
                capability=min(max(capability, 0), int(SlaveCapability.GTID)),
                registered=registered,
                semi_sync=bool(_integer(variables, "rpl_semi_sync_slave")),
            ),
            non_block=command.non_block,
            as_in_files=style.keeps_ends and variables.get("master_binlog_checksum") is not None,
            last_file=command.file if registered and file_position is None else "",
            engine_file="" if registered or style.by_files else command.file,
            target=None if named is None else _target(named, zone),
            stops=named is not None and named.stop,
        )

    @property
    def ends(self) -> bool:
        """Whether it has asked for what there is up to somewhere, and no more."""
        return self.until is not None or self.target is not None

    @property
    def place_for_log(self) -> tuple[str, Mapping[str, object]]:
        """The place where it is to begin: a text with the names of facts in it, and the facts."""
        if self.file_position is None:
            return "position '%(gtid)s'", {"gtid": shortened(str(self.position))}
        return "file '%(file)s' position %(position)d", self.file_position._asdict()


def _target(named: NamedTarget, zone: tzinfo | None) -> HistoryEnd:
    """Raises `MasterFatalError` (1236): the replica stops, and shows it."""
    try:
        return HistoryEnd.parse(named.text, zone)
    except ValueError as error:
        raise MasterFatalError(f"The login ends with +until=, and {error}") from None


def _position(text: str) -> SlavePosition:
    """A position that a replica has SET. Raises `BadGtidList` (1941), `DuplicateGtidDomain` (1943).

    And `MasterFatalError` (1236) for one that is too long: with any other error a replica would come again and again,
    without a word to its DBA.
    """
    if len(text) > GTID_LIST_BYTES_MAX:
        raise MasterFatalError(
            f"the slave's GTID position has {len(text)} bytes, and {GTID_LIST_BYTES_MAX} are the most that this server "
            "takes. SET GLOBAL gtid_slave_pos there without domains that are not used any more, or follow by file and "
            "position (MASTER_USE_GTID=no)"
        )
    return SlavePosition.parse(text)


def _integer(variables: UserVariables, name: str) -> int:
    """A user variable as a number; 0 when it is unset or says nothing of the kind."""
    try:
        return int(variables.get(name) or 0)
    except ValueError:
        return 0


def _wants_checksum(variables: UserVariables) -> bool:
    """Whether the replica wants checksums of events: only if it has asked for CRC32."""
    return str(variables.get("master_binlog_checksum")).upper() == ChecksumAlgorithm.CRC32.name


def _heartbeat_s(period_ns: int) -> float:
    """The period in seconds; 0 is none. Not below CHANGE MASTER's least: a nanosecond would leave others no time."""
    return min(max(_HEARTBEAT_NS_MIN, period_ns), _HEARTBEAT_NS_MAX) / _NS if period_ns > 0 else 0.0
