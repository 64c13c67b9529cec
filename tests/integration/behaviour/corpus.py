"""The scenarios: a history of four rows, and what the master does wrong at the second one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ROW_2: Final = "0-1-4"
"""The GTID of the group with the second row: what goes wrong goes wrong here, if anywhere in the stream."""
LAST: Final = "0-1-6"
"""That of the fourth and last row."""
BEHIND: Final = "0-1-7"
TLS: Final = "MASTER_SSL=1, MASTER_SSL_VERIFY_SERVER_CERT=0"


@dataclass(frozen=True)
class Scenario:
    """What the master does. Faults are as of `[[fault]]`; each is met once, unless it says otherwise."""

    says: str
    faults: tuple[Mapping[str, Any], ...] = ()
    link: str = "MASTER_SSL=0"  # of CHANGE MASTER
    goes_back: bool = (
        False  # ordered in front of the last row; met by one more, when the replica has that
    )
    dies: bool = False  # inside a transaction out of band, when the replica has all rows; it is started again
    semi_sync: bool = False  # ordered, and the last row logged, when the replica is there
    patience_ms: int = 1000  # rpl_semi_sync_master_timeout
    same_server_id: bool = False
    net_timeout: int = 60  # slave_net_timeout of the replica, seconds


def at_row(do: str, **more: Any) -> tuple[Mapping[str, Any], ...]:
    return ({"do": do, "gtid": ROW_2, **more},)


def error(errno: int, message: str, **where: Any) -> tuple[Mapping[str, Any], ...]:
    return ({"do": "error", "errno": errno, "message": message, **where},)


_NO_FILE = "Could not find first log file name in binary log index file"
SECTIONS: Final[Mapping[str, tuple[Scenario, ...]]] = {
    "Connections that end": (
        Scenario("in front of a group", at_row("cut")),
        Scenario("between two events of a group", at_row("cut", event=3)),
        Scenario("in the middle of an event", at_row("cut", event=3, inside=True)),
        Scenario("in the place of the greeting", ({"do": "cut", "on": "connect"},)),
        Scenario("in the place of the answer to the login", ({"do": "cut", "on": "login"},)),
        Scenario("in the place of the first event", ({"do": "cut", "on": "dump"},)),
        Scenario(
            "in the place of the answer to COM_REGISTER_SLAVE", ({"do": "cut", "on": "register"},)
        ),
        Scenario("behind byte 400 of the stream", ({"do": "cut", "byte": 400},)),
        Scenario("TLS breaks in the handshake", ({"do": "break_tls", "on": "tls"},), TLS),
        Scenario("TLS breaks in a group", at_row("break_tls", event=3), TLS),
    ),
    "Groups and events": (
        Scenario("a group is left out", at_row("leave_out")),
        Scenario("a group comes twice", at_row("repeat")),
        Scenario("a group comes behind the next one", at_row("reorder")),
        Scenario(
            "a group comes behind the next one, and the connection ends there",
            (*at_row("reorder"), {"do": "cut", "gtid": "0-1-6"}),
        ),
        Scenario(
            "an event of a type that it does not know, inside a group",
            at_row("foreign_event", event=3, event_type=200),
        ),
        Scenario(
            "an event of a type that it does not know, inside a group, which may be left out",
            at_row("foreign_event", event=3, event_type=200, ignorable=True),
        ),
        Scenario(
            "an event of a type that it does not know, in front of a group",
            at_row("foreign_event", event_type=200),
        ),
        Scenario("the CRC-32 of a row event is wrong", at_row("garble", event=4)),
        Scenario("the CRC-32 of a GTID event is wrong", at_row("garble")),
        Scenario("packets have a hole in their numbers", at_row("hole")),
        Scenario(
            "the format description is of MySQL 8",
            ({"do": "claim", "on": "format", "version": "8.0.36", "times": 0},),
        ),
        Scenario(
            "the format description is of a later MariaDB",
            ({"do": "claim", "on": "format", "version": "13.9.1-MariaDB", "times": 0},),
        ),
    ),
    "Heartbeats, and silence": (
        Scenario(
            "a heartbeat in front of the format description", ({"do": "heartbeat", "event": 2},)
        ),
        Scenario("a slow line", at_row("throttle", bytes_per_second=500)),
        Scenario("a heartbeat in the middle of a group", at_row("heartbeat", event=3)),
        Scenario(
            "a heartbeat that lies before the replica's position", at_row("heartbeat", log_pos=4)
        ),
        Scenario("a heartbeat of another file", at_row("heartbeat", file="other.000007")),
        Scenario(
            "nothing for longer than slave_net_timeout",
            at_row("delay", seconds=2.5),
            net_timeout=1,
        ),
        Scenario(
            "only heartbeats for longer than slave_net_timeout",
            at_row("delay", seconds=2.5, heartbeats=True),
            net_timeout=1,
        ),
    ),
    "Semi-sync": (
        Scenario("an acknowledgement is lost", ({"do": "lose_ack", "gtid": LAST},), semi_sync=True),
        Scenario(
            "an acknowledgement is late",
            ({"do": "delay_ack", "gtid": LAST, "seconds": 0.3},),
            semi_sync=True,
            patience_ms=20_000,  # however slow this machine is, it is not too late
        ),
        Scenario(
            "an acknowledgement is later than rpl_semi_sync_master_timeout",
            ({"do": "delay_ack", "gtid": LAST, "seconds": 3},),
            semi_sync=True,
        ),
    ),
    "Errors instead of answers": (
        Scenario("1040 instead of the greeting", error(1040, "Too many connections", on="connect")),
        Scenario("1129 instead of the greeting", error(1129, "Host is blocked", on="connect")),
        Scenario("1045 to the login", error(1045, "Access denied", on="login")),
        Scenario(
            "1193 to the first question, SELECT UNIX_TIMESTAMP()",
            error(1193, "Unknown system variable", statement="SELECT UNIX_TIMESTAMP"),
        ),
        *(
            Scenario(
                f"1193 to SET @{name}",
                error(1193, "Unknown system variable", statement=f"SET @{name}"),
            )
            for name in (
                "master_heartbeat_period",
                "master_binlog_checksum",
                "mariadb_slave_capability",
                "slave_connect_state",
            )
        ),
        Scenario("1227 to COM_REGISTER_SLAVE", error(1227, "Access denied", on="register")),
        Scenario("1236 instead of the first event", error(1236, _NO_FILE, on="dump")),
        Scenario("1236 in the stream", error(1236, _NO_FILE, gtid=ROW_2)),
        Scenario("1053 in the stream", error(1053, "Server shutdown in progress", gtid=ROW_2)),
        Scenario("1105 in the stream", error(1105, "Unknown error", gtid=ROW_2)),
        Scenario("another replica with its server_id has come", at_row("duplicate_server_id")),
    ),
    "Another master than it was": (
        Scenario(
            "it has lost its last group, and begins anew",
            ({"do": "lose_tail", "gtid": BEHIND},),
            goes_back=True,
        ),
        Scenario(
            "it has another group under the last GTID",
            ({"do": "another_history", "gtid": BEHIND},),
            goes_back=True,
        ),
        Scenario(
            "it dies inside a transaction out of band, and is started again",
            ({"do": "die", "on": "out_of_band"},),
            dies=True,
        ),
        Scenario("it has the server_id of the replica", same_server_id=True),
        Scenario(
            "it says that it is MySQL 8.0.36",
            ({"do": "claim", "on": "connect", "version": "8.0.36", "times": 0},),
        ),
        Scenario(
            "it says that it is MariaDB 5.5",
            ({"do": "claim", "on": "connect", "version": "5.5.68-MariaDB", "times": 0},),
        ),
        Scenario(
            "it can neither compress nor several statements",
            (
                {
                    "do": "claim",
                    "on": "connect",
                    "without": "COMPRESS,MULTI_STATEMENTS,MULTI_RESULTS,SESSION_TRACK",
                    "times": 0,
                },
            ),
        ),
    ),
}
CHEAP: Final = (
    "in the middle of an event",
    "the CRC-32 of a row event is wrong",
    "a group comes twice",
)
"""Those that every run of the tests tries."""
SCENARIOS: Final = {one.says: one for section in SECTIONS.values() for one in section}
