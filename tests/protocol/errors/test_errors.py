from __future__ import annotations

import pytest
from binlog_protocol import errors
from binlog_protocol.errors import MasterFatalError, ServerError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.compressed import CannotUncompress

GTID = Gtid(0, 1, 9999)

TEXTS: list[tuple[ServerError, int, str, str]] = [
    (errors.TooManyConnections(), 1040, "08004", "Too many connections"),
    (errors.BadHandshake(), 1043, "08S01", "Bad handshake"),
    (
        errors.AccessDenied("repl", "127.0.0.1", using_password=True),
        1045,
        "28000",
        "Access denied for user 'repl'@'127.0.0.1' (using password: YES)",
    ),
    (
        errors.AccessDenied("", "h", using_password=False),
        1045,
        "28000",
        "Access denied for user ''@'h' (using password: NO)",
    ),
    (errors.UnknownCommandError(), 1047, "08S01", "Unknown command"),
    (errors.UnknownThread(7), 1094, "HY000", "Unknown thread id: 7"),
    (
        errors.PacketTooBig(),
        1153,
        "08S01",
        "Got a packet bigger than 'max_allowed_packet' bytes",
    ),
    (errors.PacketsOutOfOrder(), 1156, "08S01", "Got packets out of order"),
    (CannotUncompress(), 1157, "08S01", "Couldn't uncompress communication packet"),
    (errors.UnknownSystemVariable("x"), 1193, "HY000", "Unknown system variable 'x'"),
    (
        MasterFatalError.unknown_position(GTID),
        1236,
        "HY000",
        "Error: connecting slave requested to start from GTID 0-1-9999, which is not in the "
        "master's binlog",
    ),
    (
        MasterFatalError.diverged_position(Gtid(0, 33, 5)),
        1236,
        "HY000",
        "Error: connecting slave requested to start from GTID 0-33-5, which is not in the "
        "master's binlog. Since the master's binlog contains GTIDs with higher sequence numbers, "
        "it probably means that the slave has diverged due to executing extra erroneous "
        "transactions",
    ),
    (
        MasterFatalError.purged_position(),
        1236,
        "HY000",
        "Could not find GTID state requested by slave in any binlog files. Probably the slave "
        "state is too old and required binlog files have been purged.",
    ),
    (
        MasterFatalError.hole(Gtid(0, 1, 505)),
        1236,
        "HY000",
        "The binlog on the master is missing the GTID 0-1-505 requested by the slave (even though "
        "both a prior and a subsequent sequence number does exist), and GTID strict mode is "
        "enabled",
    ),
    (errors.UnknownTargetBinlog(), 1373, "HY000", "Target log not found in binlog index"),
    (errors.BadGtidList(), 1941, "HY000", "Could not parse GTID list"),
    (
        errors.DuplicateGtidDomain(Gtid(0, 1, 3), Gtid(0, 1, 2)),
        1943,
        "HY000",
        "GTID 0-1-3 and 0-1-2 conflict (duplicate domain id 0)",
    ),
    (
        errors.DuplicateServerId(),
        4052,
        "HY000",
        "A slave with the same server_id is already connected",
    ),
    (
        errors.EngineBinlogNeedsGtid(),
        4246,
        "HY000",
        "Slave must enable GTID mode when master uses --binlog-storage-engine",
    ),
]


@pytest.mark.parametrize(("error", "errno", "sqlstate", "text"), TEXTS)
def test_number_state_and_text(error: ServerError, errno: int, sqlstate: str, text: str) -> None:
    assert (error.errno, error.sqlstate, error.message) == (errno, sqlstate, text)
    assert ServerError.registry[errno] is type(error)


@pytest.mark.parametrize(
    "errno",
    [1064, 1105, 1053, 1227, 1231, 1238, 1835, 4252],
)
def test_number_is_registered(errno: int) -> None:
    assert ServerError.registry[errno].errno == errno


def test_a_number_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="both are error 1236"):
        type("Second", (ServerError,), {"errno": 1236, "sqlstate": "HY000"})
    assert ServerError.registry[1236] is MasterFatalError


@pytest.mark.parametrize("fields", [{"errno": 60001}, {"errno": 60001, "sqlstate": "HY00"}])
def test_a_class_says_number_and_state(fields: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        type("Half", (ServerError,), fields)
    assert 60001 not in ServerError.registry
