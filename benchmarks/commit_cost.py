"""The cost of commits to a server: time, processor, syncs and bytes, each as the difference over a load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from binlog_protocol.wire.packets import PACKET_HEADER_SIZE

from benchmarks import committers, drain, machine
from benchmarks.committers import Committed, Load
from benchmarks.masters import Master, counter
from benchmarks.registry import BenchmarkError
from benchmarks.servers import Usage

# Of SHOW GLOBAL STATUS. mariadbd and we tell these by the same names,
GROUPS: Final = "Binlog_commits"
BATCHES: Final = "Binlog_group_commits"
# and these of ours are about the binlog; mariadbd has them for InnoDB alone.
FSYNCS: Final = "Innodb_data_fsyncs"
WRITTEN: Final = "Innodb_data_written"
LOG_WRITTEN: Final = "Innodb_os_log_written"
BINLOG_WRITTEN: Final = "Binlog_bytes_written"

_STATUS_BYTE: Final = 1  # in front of each event that a dump sends


@dataclass(slots=True)
class Cost:
    """The cost of commits on one number of connections; all but the speed with the warm-ups."""

    runs: list[Committed] = field(default_factory=list)
    cpu_s: float = 0.0
    dirtied_bytes: int = 0
    device_bytes: int = 0
    counted: dict[str, int] = field(default_factory=dict)

    @property
    def commits_s(self) -> float:
        """Median of the rounds."""
        return median(run.commits_s for run in self.runs)

    @property
    def commits(self) -> int:
        return sum(run.total for run in self.runs)

    def per_commit(self, name: str) -> float:
        """A counter of the server's. Raises `BenchmarkError` if there is none of that name."""
        return counter(self.counted, name) / self.commits

    def report(self) -> dict[str, Any]:
        client_s = sum(run.cpu_s for run in self.runs)
        client_commits = sum(run.commits for run in self.runs)
        return {
            "commits_s": round(self.commits_s),
            "rounds": [round(run.commits_s) for run in self.runs],
            "groups_per_batch": round(self.counted[GROUPS] / max(1, self.counted[BATCHES]), 2),
            "cpu_us_per_commit": round(self.cpu_s / self.commits * 1e6, 1),
            "client_cpu_us_per_commit": round(client_s / client_commits * 1e6, 1),
            "device_bytes_per_commit": round(self.device_bytes / self.commits),
        }


class Subject:
    """A server, and what each number of connections cost it."""

    def __init__(self, master: Master) -> None:
        self.master = master
        self.costs: dict[int, Cost] = {}
        self._group_bytes: float | None = None

    def measure(
        self, load: Load, connections: int, seconds: float, warm_up: float, *, keep: bool = True
    ) -> Committed:
        """Measure one round. Raises `BenchmarkError` unless each commit became a group."""
        master = self.master
        status, before = master.status(), self._so_far()
        done = committers.run(master.source, master.writer, load, connections, seconds, warm_up)
        used = [now - then for now, then in zip(self._so_far(), before, strict=True)]
        counted = {name: now - status.get(name, 0) for name, now in master.status().items()}
        if counter(counted, GROUPS) != done.total:
            raise BenchmarkError(f"{master.name}: {counted[GROUPS]} groups of {done.total} commits")
        if keep:
            cost = self.costs.setdefault(connections, Cost())
            cost.runs.append(done)
            cost.cpu_s += used[0]
            cost.dirtied_bytes += round(used[1])
            cost.device_bytes += round(used[2])
            for name, value in counted.items():
                cost.counted[name] = cost.counted.get(name, 0) + value
        return done

    def per_commit(self, name: str) -> dict[str, float]:
        """A counter by the number of connections. Raises `BenchmarkError`."""
        return {str(n): round(cost.per_commit(name), 4) for n, cost in self.costs.items()}

    def _so_far(self) -> tuple[float, int, int]:
        master = self.master
        device = machine.device_bytes(master.directory) or 0
        return master.cpu_s(), master.dirtied_bytes(), device

    def amplification(self, counters: Sequence[str] = ()) -> dict[str, float]:
        """Bytes written by bytes of groups, by those counters of the server's, and as seen from outside.

        `device`: what went to the disk, by anybody on the machine, file system and block sizes included.
        `dirtied`: see `Master.dirtied_bytes`. Raises `BenchmarkError`.
        """
        costs = self.costs.values()
        groups = sum(cost.commits for cost in costs) * self.group_bytes()
        written = {name: sum(counter(cost.counted, name) for cost in costs) for name in counters}
        written["device"] = sum(cost.device_bytes for cost in costs)
        written["dirtied"] = sum(cost.dirtied_bytes for cost in costs)
        return {name: round(value / groups, 3) for name, value in written.items()}

    def group_bytes(self) -> float:
        """Bytes of one commit as a replica gets it, without packet headers. Raises `BenchmarkError`."""
        if self._group_bytes is None:
            drained = drain.run(self.master.source, 1, count=True)
            heads = drained.events * (PACKET_HEADER_SIZE + _STATUS_BYTE)
            self._group_bytes = (drained.bytes - heads) / drained.groups
        return self._group_bytes

    def report(self) -> dict[str, Any]:
        return {
            **{str(n): cost.report() for n, cost in self.costs.items()},
            "group_bytes": round(self.group_bytes()),
            "peak_rss_mb": round(Usage.of(self.master.pid).peak_rss_mb),
        }
