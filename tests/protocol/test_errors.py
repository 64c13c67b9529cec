from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest
from binlog_protocol import errors
from binlog_protocol.errors import ErrorKind, ServerError
from binlog_protocol.gtid import Gtid

from tests.house import product, walk
from tests.protocol.errors_page import PAGE, page

GTID = Gtid(0, 1, 9999)

TEXTS: list[tuple[ServerError, int, str, str]] = [
    (errors.TooManyConnections(), 1040, "08004", "Too many connections"),
    (errors.BadHandshake(), 1043, "08S01", "Bad handshake"),
    (
        errors.AccessDenied("repl", "127.0.0.1", "YES"),
        1045,
        "28000",
        "Access denied for user 'repl'@'127.0.0.1' (using password: YES)",
    ),
    (
        errors.AccessDenied("", "h", "NO"),
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
    (errors.CannotUncompress(), 1157, "08S01", "Couldn't uncompress communication packet"),
    (errors.UnknownSystemVariable("x"), 1193, "HY000", "Unknown system variable 'x'"),
    (
        errors.GtidNotInBinlog(GTID),
        1236,
        "HY000",
        "Error: connecting slave requested to start from GTID 0-1-9999, which is not in the "
        "master's binlog",
    ),
    (
        errors.GtidDiverged(Gtid(0, 33, 5)),
        1236,
        "HY000",
        "Error: connecting slave requested to start from GTID 0-33-5, which is not in the "
        "master's binlog. Since the master's binlog contains GTIDs with higher sequence numbers, "
        "it probably means that the slave has diverged due to executing extra erroneous "
        "transactions",
    ),
    (
        errors.GtidPurged(),
        1236,
        "HY000",
        "Could not find GTID state requested by slave in any binlog files. Probably the slave "
        "state is too old and required binlog files have been purged.",
    ),
    (
        errors.GtidMissing(Gtid(0, 1, 505)),
        1236,
        "HY000",
        "The binlog on the master is missing the GTID 0-1-505 requested by the slave (even though "
        "both a prior and a subsequent sequence number does exist), and GTID strict mode is "
        "enabled",
    ),
    (errors.UnknownTargetBinlog(), 1373, "HY000", "Target log not found in binlog index"),
    (errors.BadGtidList(), 1941, "HY000", "Could not parse GTID list"),
    (
        errors.DuplicateGtidDomain(Gtid(0, 1, 3), Gtid(0, 1, 2), 0),
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


KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, ErrorKind)}


def test_a_number_has_one_state_and_one_weight() -> None:
    facts = {kind.errno: (kind.sqlstate, kind.fatal) for kind in KINDS.values()}
    assert all(facts[kind.errno] == (kind.sqlstate, kind.fatal) for kind in KINDS.values())
    assert all(len(kind.sqlstate) == 5 for kind in KINDS.values())


def test_the_list_is_in_the_order_of_the_numbers() -> None:
    numbers = [kind.errno for kind in KINDS.values()]
    assert numbers == sorted(numbers)


def test_no_row_of_the_list_stands_twice() -> None:
    """As two branches that add the same row leave it: the second one hides the first."""
    tree = ast.parse(Path(errors.__file__).read_text("utf-8"))
    names = [ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)]
    assert set(names) >= KINDS.keys()
    assert len(set(names)) == len(names)


def test_an_error_has_the_values_of_its_text() -> None:
    assert errors.UserLimitReached.names == ["user", "resource", "value"]
    assert errors.SlaveMustStop("a {b}").message.count("'a {b}'") == 2
    for values in ((), ("u", "r"), ("u", "r", 1, 2)):
        with pytest.raises(ValueError, match="zip"):
            errors.UserLimitReached(*values)


def test_every_error_of_the_product_is_made_with_the_values_of_its_text() -> None:
    """As a type checker would find it, if each error were a function."""
    made, wrong = set(), []
    for module in product().modules.values():
        for call in walk(module.text):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                kind = KINDS.get(call.func.id)
                made.add(call.func.id)
                if kind is not None and len(call.args) != len(kind.names):
                    wrong.append(f"{module.path}:{call.lineno}: {call.func.id}")
    assert wrong == []
    assert (
        len(made & KINDS.keys()) > len(KINDS) * 0.8
    )  # the others are only asked for their numbers


def test_an_error_goes_from_process_to_process() -> None:
    error = pickle.loads(pickle.dumps(errors.UnknownThread(7)))
    assert (error.kind, str(error)) == (errors.UnknownThread, "1094 (HY000): Unknown thread id: 7")


def test_the_page_is_made_of_the_list() -> None:
    """docs/errors.md; python -m tests.protocol.errors_page writes it."""
    assert PAGE.read_text("utf-8") == page()
    assert page().count("\n| ") > 200
