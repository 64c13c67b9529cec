"""How the replicas of an account are served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class StreamStyle(Enum):
    """What a stream looks like.

    ENGINE: as that of a MariaDB 12.3 master whose binlog is in the engine: by GTID only, without positions.
    CLASSIC: as that of a traditional binlog: files, growing positions, checksums as negotiated.
    """

    ENGINE = "engine"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """Limits: 0 is none.

    max_bytes_per_second: of the stream of each replica.
    max_lag_bytes, max_lag_seconds: a replica that is further behind the durable end for so long is dropped.
    """

    style: StreamStyle = StreamStyle.ENGINE
    max_bytes_per_second: int = 0
    max_lag_bytes: int = 0
    max_lag_seconds: int = 0

    def to_json(self) -> dict[str, str | int]:
        """As it is kept."""
        return {**asdict(self), "style": self.style.value}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> ReplicaPolicy:
        """From `to_json`; what is not in it is as it was before there was such a thing."""
        return cls(**{**kept, "style": StreamStyle(kept.get("style", StreamStyle.ENGINE.value))})
