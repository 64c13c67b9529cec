"""Runs the statements that cannot be answered at once: in threads, with the rows sent as they come."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.connection.server_states import ServerState
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError, StatementTimeout
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import OpenBinlog
from binlog_storage.errors import StorageError

from binlog_server.loop.defects import internal_error
from binlog_server.loop.fair_thread import FairThread
from binlog_server.loop.few_threads import FewThreads
from binlog_server.loop.shielded import shielded
from binlog_server.queries.terms import MustWait
from binlog_server.sql.gtid_waits import GtidWaits
from binlog_server.sql.maintenance import server_error
from binlog_server.sql.view import (
    Client,
    Computed,
    Deed,
    Later,
    ResultSet,
    Row,
    RowStream,
    Wait,
    Work,
    text_bytes,
)

T = TypeVar("T")

# Threads for statements only: dumps use those of the loop, and clients with long statements must not take them all.
THREADS = 4
ROW_THREADS = 4  # for statements that change rows: none of them waits for another session
# Of a result: about a millisecond to make packets of.
_VALUES_AT_ONCE = 600  # some milliseconds where the client wants another character set
_BYTES_AT_ONCE = 256 * 1024


class Runner:
    """The threads for statements, of one event loop. To be made while the loop runs, and used on it."""

    def __init__(self, engine: OpenBinlog) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._threads = FewThreads(THREADS, "binlog-sql")
        # A thread for each line, so that a statement that waits for room does not delay PURGE.
        self._lines: dict[str, ThreadPoolExecutor] = {}
        self._parser = FairThread("sql-parser")
        self._writer = FairThread("sql-accounts")
        self._questions = FairThread("sql-questions")
        self._rows = FairThread("sql-rows", threads=ROW_THREADS)
        self._commits = FairThread("sql-commit")
        self._gtid_waits = GtidWaits(engine)
        self._is_closed = False

    def close(self) -> None:
        """Take no more statements, and wait for those that run: they change files."""
        self._is_closed = True
        self._parser.close(wait=False)
        self._questions.close(wait=False)
        self._writer.close(wait=True)
        self._rows.close(wait=True)
        self._commits.close(wait=True)
        for threads in (self._threads, *self._lines.values()):
            threads.shutdown(wait=True, cancel_futures=True)

    def in_thread(self, who: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function that only computes, in a thread that never waits for a disk.

        Args:
            who: the account that asks; accounts take turns.
        """
        return self._parser.call(who, call)

    def in_row_thread(self, call: Callable[[], T], who: str = "") -> asyncio.Future[T]:
        """Call what changes rows of tables here, or undoes it. It waits for room in the store, never for a lock.

        Cancelled when the server stops: the next start undoes what has no end.

        Args:
            who: the account, as of `in_thread`; one alone never has all of the threads.
        """
        return self._call(self._rows, who, call)

    def _call(self, threads: FairThread, who: str, call: Callable[[], T]) -> asyncio.Future[T]:
        if self._is_closed:
            future: asyncio.Future[T] = self._loop.create_future()
            future.cancel()
            return future
        return threads.call(who, call)

    def in_commit_thread(self, call: Callable[[], T], who: str = "") -> asyncio.Future[T]:
        """Call a commit that takes long, in its turn: see `GroupWriter.turn`. Cancelled when the server stops."""
        return self._call(self._commits, who, call)

    def row_threads(self, who: str) -> RowThreadsOf:
        """The threads for changes of rows, for an account."""
        return RowThreadsOf(self, who)

    async def answer(
        self,
        what: Later,
        client: Client,
        machine: ServerConnection,
        warnings: Callable[[], int],
    ) -> None:
        """Run the rest of a statement, and send the client its answer. Errors become the answer: it raises none.

        Args:
            warnings: gives the number of warnings; called when the statement has ended.
        """
        # A client that leaves during a long wait is noticed only while its socket is read.
        if not isinstance(what, Wait | Computed) and not (isinstance(what, Work) and what.line):
            client.hold(held=True)
        try:
            if isinstance(what, RowStream):
                client.answered(await self._send(what, client, machine, warnings))
                return
            result: ResultSet | None = None
            if isinstance(what, Work):
                result = await self._work(what, machine)
            elif isinstance(what, Computed):
                client.holds_more()
                result = await self._look(what)
                client.holds_more()
            elif isinstance(what, Deed):
                await shielded(asyncio.ensure_future(what.run()))
            else:
                result = what.result(await self._reached(what))
            if machine.is_closed:
                return
            shown = None if result is None else in_parts(result)
            if result is not None:
                client.answered(len(result.rows) if result.found is None else result.found)
            if isinstance(shown, RowStream):
                await self._send(shown, client, machine, warnings)
                return
            machine.warnings = warnings()
            if shown is None:
                stored = what.stored() if isinstance(what, Computed) else 0
                client.write(machine.send_ok(affected_rows=stored))
            else:
                client.write(machine.send_result_set(shown.columns, shown.rows))
        except ServerError as error:
            client.refused(error)
        except StorageError as error:
            client.refused(server_error(error))
        except ConnectionError:
            pass  # logged by the connection
        except Exception as error:  # noqa: BLE001 - logged there
            if not self._is_closed:  # a closed runner has no threads, which is no bug to report
                client.refused(internal_error(error, f"connection {machine.connection_id}"))
        finally:
            client.hold(held=False)

    async def _work(self, work: Work, machine: ServerConnection) -> ResultSet | None:
        future = self.begin(work)
        try:
            return await shielded(future)
        except asyncio.CancelledError:
            work.give_up()
            if not work.line or machine.state is not ServerState.ANSWERING or future.cancel():
                raise
            return await shielded(future)  # KILL QUERY: the work's error tells how far it came

    async def _look(self, look: Computed) -> ResultSet | None:
        """Raises `StatementTimeout` (1969), and what the question raises."""
        try:
            async with asyncio.timeout(look.timeout_s):
                while True:
                    try:
                        result = await self._questions.call(look.account, look.run)
                        break
                    except MustWait as wait:
                        await look.wait(wait)
                await asyncio.sleep(look.sleeps_s())
        except TimeoutError:
            raise StatementTimeout() from None
        finally:
            look.give_up()
        look.done()
        return result if look.gives_rows else None

    def begin(self, work: Work) -> asyncio.Future[ResultSet | None]:
        """Begin it in a thread; what it gives. Its `done` is called whoever waits for it."""
        future = self._in_its_thread(work)

        def done(_: asyncio.Future[ResultSet | None]) -> None:
            if not future.cancelled():  # cancelled means that the work has not begun
                work.done()

        future.add_done_callback(done)
        return future

    def _in_its_thread(self, work: Work) -> asyncio.Future[ResultSet | None]:
        if work.in_turn_of is not None:
            return self._writer.call(work.in_turn_of, work.run)
        threads: ThreadPoolExecutor = self._threads
        if work.line:
            if work.line not in self._lines:
                self._lines[work.line] = FewThreads(1, f"sql-{work.line}")
            threads = self._lines[work.line]
        return self._loop.run_in_executor(threads, work.run)

    async def _send(
        self,
        stream: RowStream,
        client: Client,
        machine: ServerConnection,
        warnings: Callable[[], int],
    ) -> int:
        rows = _Steps(stream.batches)
        begun = False
        count = 0
        try:
            while (batch := await self._in_thread(rows.next)) is not None:
                if not batch:
                    continue
                if not begun:  # an error before the first row is the whole answer
                    client.write(machine.begin_result_set(stream.columns))
                    begun = True
                client.write(machine.more_rows(batch))
                count += len(batch)
                await client.drain()
            if not begun:
                client.write(machine.begin_result_set(stream.columns))
            machine.warnings = warnings()
            client.write(machine.end_result_set())
            return count
        finally:
            with contextlib.suppress(RuntimeError):  # when the server stops
                self._threads.submit(rows.close)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await shielded(self._loop.run_in_executor(self._threads, call))

    async def _reached(self, wait: Wait) -> bool:
        left = list(wait.position)
        if wait.timeout_s == 0:
            return self._have_come(left)
        try:
            async with asyncio.timeout(wait.timeout_s):
                while not self._have_come(left):
                    await self._gtid_waits.come(left[-1])
                # If nothing is committed afterwards, nobody else syncs the last group.
                await self._in_thread(self._engine.sync)
            return True
        except TimeoutError:
            return False

    def _have_come(self, left: list[Gtid]) -> bool:
        """Whether the store has all these GTIDs. Removes from the end of the list those that it has."""
        while left:
            wanted = left[-1]
            last = self._engine.binlog_state(wanted.domain_id).last(wanted.domain_id)
            if last is None or last.seq_no < wanted.seq_no:
                return False
            left.pop()
        return True


def in_parts(result: ResultSet) -> ResultSet | RowStream:
    """The result, as a stream if it is large: others come in between while packets are made of it."""
    rows, columns = result.rows, result.columns
    at_once = max(1, _VALUES_AT_ONCE // max(1, len(columns)))
    if len(rows) <= at_once and sum(map(text_bytes, rows)) <= _BYTES_AT_ONCE:
        return result
    return RowStream(columns, _batches(rows, at_once))


def _batches(rows: Sequence[Row], at_once: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        size += text_bytes(row)
        if batch and (size > _BYTES_AT_ONCE or len(batch) == at_once):
            yield batch
            batch, size = [], text_bytes(row)
        batch.append(row)
    yield batch


class _Steps:
    """An iterator that any thread may close: if another thread is in a step, the close waits until the step ends."""

    def __init__(self, batches: Iterator[list[Row]]) -> None:
        self._batches = batches
        self._lock = threading.Lock()

    def next(self) -> list[Row] | None:
        with self._lock:
            return next(self._batches, None)

    def close(self) -> None:
        with self._lock:
            if isinstance(self._batches, Generator):
                self._batches.close()


@dataclass(frozen=True, slots=True)
class RowThreadsOf:
    """See `Runner.in_row_thread`."""

    runner: Runner
    who: str

    def in_row_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return self.runner.in_row_thread(call, self.who)

    def in_commit_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """See `Runner`."""
        return self.runner.in_commit_thread(call, self.who)
