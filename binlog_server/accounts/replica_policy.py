"""How the replicas of an account are served: what its stream looks like, how fast it flows, how far it may fall behind.

The names of the limits are those of SQL (`CREATE USER ... WITH MAX_LAG_SECONDS 600`), in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

RATE_MIN = 1024  # slower is no replication: stop the replica instead
LAG_BYTES_MIN = 1 << 20  # what is on its way is no lag
_BYTES_MAX = 1 << 50
_SECONDS_MAX = 31_536_000


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

    max_bytes_per_second: of the stream of each replica, before TLS and compression.
    max_lag_bytes, max_lag_seconds: a replica that is further behind, and does not come nearer, is dropped; see
        `LagWatch`.
    """

    style: StreamStyle = StreamStyle.ENGINE
    max_bytes_per_second: int = 0
    max_lag_bytes: int = 0
    max_lag_seconds: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if value != 0 and not low <= value <= high:
                raise ValueError(f"{name} is 0 for no limit, or from {low} to {high}, not {value}")

    @property
    def limits_lag(self) -> bool:
        """Whether a replica may be dropped for it."""
        return bool(self.max_lag_bytes or self.max_lag_seconds)

    def changed(self, options: Mapping[str, Any]) -> ReplicaPolicy:
        """The policy with options by name: `stream_style` and the limits. ValueError for other names or bad values."""
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if name == "stream_style":
                changes["style"] = _style(value)
            elif name not in LIMITS:
                raise ValueError(f"there is no option {name!r}")
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
        words += [f"{name.upper()} {value}" for name in LIMITS if (value := getattr(self, name))]
        return words

    def to_json(self) -> dict[str, str | int]:
        """The policy as JSON, for the state."""
        return {**asdict(self), "style": self.style.value}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> ReplicaPolicy:
        """The policy that `to_json` has made; options that it lacks have their defaults."""
        return cls(**{**kept, "style": StreamStyle(kept.get("style", StreamStyle.ENGINE.value))})


def _style(value: object) -> StreamStyle:
    try:
        return StreamStyle(str(value).lower())
    except ValueError:
        names = " or ".join(style.value for style in StreamStyle)
        raise ValueError(f"stream_style is {names}, not {str(value)[:64]!r}") from None
