"""A stream to a replica that suffers faults: made in the place of a `ReplicaStream` where there are some."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from binlog_protocol.errors import ServerError

from binlog_server.dumps.faults import FaultRun, OrderedFault, Step, StreamFault
from binlog_server.dumps.replica_stream import ReplicaStream, Throttle
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks


class FaultyStream(ReplicaStream):
    """See `ReplicaStream`. `checksum`: its events have checksums."""

    def __init__(
        self, ordered: Sequence[OrderedFault], *arguments: Any, checksum: bool, **named: Any
    ) -> None:
        self._run = FaultRun(ordered, checksum=checksum)
        self._steps: deque[Step] = deque()  # from the first fault on that is not over
        super().__init__(*arguments, **named)
        self._timers = [
            self._loop.call_later(one.fault.after_seconds, self._due, one)
            for one in ordered
            if one.fault.after_seconds
        ]

    def follow(self, acks: ReplicaAcks, semi_sync: SemiSyncMaster) -> None:
        super().follow(acks, semi_sync)
        self._run.start_semi_sync()

    def _write(self, data: bytes | bytearray) -> None:
        for step in self._run.take(data):
            if self._steps or isinstance(step, StreamFault):
                self._steps.append(step)
            else:
                super()._write(step)

    async def drain(self) -> None:
        """Raises `ConnectionError` where a fault ends the stream, too."""
        while self._steps:
            step = self._steps.popleft()
            if isinstance(step, StreamFault):
                await super().drain()
                await self._suffer(step)
            else:
                super()._write(step)
        await super().drain()

    async def _suffer(self, fault: StreamFault) -> None:
        match fault.do:
            case "delay":
                self.connection.state = f"A fault delays it by {fault.seconds} s"
                await asyncio.sleep(fault.seconds)
            case "throttle":
                self._throttle = Throttle(fault.bytes_per_second, self._loop.time())
            case "cut":
                self._channel.close()
                raise ConnectionAbortedError("a fault that was ordered: cut")
            case "error":
                self.fail(fault.error)
                raise ConnectionAbortedError(f"a fault that was ordered: error {fault.errno}")

    def _due(self, one: OrderedFault) -> None:
        """The time of a fault has come: the dump may be waiting for the tail."""
        if not one.is_live or self._run.has_ended:
            return
        one.met += 1
        match one.fault.do:
            case "error":
                self._drop(one.fault.error)
            case "cut":
                self._channel.close()
            case _:
                self._steps.append(one.fault)

    # --- the end ---

    def flush(self) -> None:
        """What waits goes at once; a fault that would end the stream ends it."""
        while self._steps and not (
            isinstance(step := self._steps.popleft(), StreamFault) and step.do in ("cut", "error")
        ):
            if not isinstance(step, StreamFault):
                super()._write(step)
        self._steps.clear()
        super().flush()

    def fail(self, error: ServerError) -> None:
        self._number_anew()
        super().fail(error)

    def end(self) -> None:
        self._number_anew()
        super().end()

    def _number_anew(self) -> None:
        """Packets were left out, or added."""
        if self._run.next_seq is not None:
            self.machine.dump_sequence = self._run.next_seq

    def close(self) -> None:
        super().close()
        for timer in self._timers:
            timer.cancel()
