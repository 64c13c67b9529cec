"""How the replicas of an account are served: what its stream looks like, how fast it flows, how far it may fall behind.

The names of the limits are those of SQL (`CREATE USER ... WITH MAX_LAG_SECONDS 600`), in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from enum import Enum
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.format_description import SERVER_VERSION_SIZE
from binlog_storage.console.arguments import did_you_mean

RATE_MIN = 1024  # slower is no replication: stop the replica instead
LAG_BYTES_MIN = 1 << 20  # what is on its way is no lag
_BYTES_MAX = 1 << 50
_SECONDS_MAX = 31_536_000
_QUIET: Final = compiled_later(r"[\w.+~ -]{1,50}", re.ASCII)  # no quotes: it stands in SHOW GRANTS


class StreamStyle(Enum):
    """The style of a stream to a replica.

    ENGINE: as that of a MariaDB 12.3 master whose binlog is in the engine: by GTID only, without positions.
    CLASSIC: as that of a traditional binlog: files, growing positions, checksums as negotiated.
    """

    ENGINE = "engine"
    CLASSIC = "classic"


# From, to. 0 is none for each of them.
LIMITS: Mapping[str, tuple[int, int]] = {
    "max_bytes_per_second": (RATE_MIN, _BYTES_MAX),
    "max_lag_bytes": (LAG_BYTES_MIN, _BYTES_MAX),
    "max_lag_seconds": (1, _SECONDS_MAX),
}


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """Limits: 0 is none. ValueError for one that makes no sense.

    server_version: VERSION() and @@version of its sessions, for programs that refuse a newer server; empty: the
        server's. The greeting comes before the account is known, and has the server's.
    max_bytes_per_second: of the stream of each replica, before TLS and compression.
    max_lag_bytes, max_lag_seconds: a replica that is further behind, and does not come nearer, is dropped; see
        `LagWatch`.
    """

    style: StreamStyle = StreamStyle.ENGINE
    max_bytes_per_second: int = 0
    max_lag_bytes: int = 0
    max_lag_seconds: int = 0
    server_version: str = ""

    def __post_init__(self) -> None:
        if self.server_version:
            if not _QUIET.fullmatch(self.server_version):
                raise ValueError(f"{self.server_version!r} is no version: letters, digits, .-+_~")
            check_server_version(self.server_version)
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if value != 0 and not low <= value <= high:
                raise ValueError(f"{name} is 0 for no limit, or from {low} to {high}, not {value}")

    @property
    def limits_lag(self) -> bool:
        """Whether a replica may be dropped for it."""
        return bool(self.max_lag_bytes or self.max_lag_seconds)

    def changed(self, options: Mapping[str, Any]) -> ReplicaPolicy:
        """The policy with options by name: `stream_style`, `server_version` and the limits.

        ValueError for other names or bad values.
        """
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if name == "stream_style":
                changes["style"] = _style(value)
            elif name == "server_version":
                changes[name] = str(value)
            elif name not in LIMITS:
                known = ("stream_style", "server_version", *LIMITS)
                raise ValueError(f"there is no option {name!r}{did_you_mean(name, known)}")
            elif type(value) is not int:
                raise ValueError(f"{name} is a number, not {value!r}")
            else:
                changes[name] = value
        return replace(self, **changes)

    def words(self) -> list[str]:
        """The words behind WITH in SQL; limits at their defaults are left out."""
        words = []
        if self.style is not StreamStyle.ENGINE:
            words.append(f"STREAM_STYLE {self.style.name}")
        if self.server_version:
            words.append(f"SERVER_VERSION '{self.server_version}'")
        words += [f"{name.upper()} {value}" for name in LIMITS if (value := getattr(self, name))]
        return words

    def to_json(self) -> dict[str, str | int]:
        """The policy as JSON, for the state."""
        return {**asdict(self), "style": self.style.value}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> ReplicaPolicy:
        """The policy that `to_json` has made; options that it lacks have their defaults."""
        return cls(**{**kept, "style": StreamStyle(kept.get("style", StreamStyle.ENGINE.value))})


def check_server_version(text: str) -> None:
    """ValueError for a version that is too long or no version of a server with GTIDs."""
    number = text.removeprefix("5.5.5-").split(".")[0]
    if not (number.isdecimal() and len(number) <= SERVER_VERSION_SIZE) or int(number) < 10:
        raise ValueError(
            f"{text!r} must begin with a number of 10 or more, or replicas fall back to file positions"
        )
    if len(text.encode()) > SERVER_VERSION_SIZE:
        raise ValueError(f"{text!r} is longer than {SERVER_VERSION_SIZE} bytes")


def _style(value: object) -> StreamStyle:
    try:
        return StreamStyle(str(value).lower())
    except ValueError:
        names = " or ".join(style.value for style in StreamStyle)
        raise ValueError(f"stream_style is {names}, not {str(value)[:64]!r}") from None
