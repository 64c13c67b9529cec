"""The corpus finds nothing any more, a few new inputs neither; and what is planted is found."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.connection.commands import Command, parse_command
from binlog_protocol.connection.handshake import LoginRequest
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler
from binlog_storage.archive.opened_part import OpenedPart
from binlog_storage.archive.parquet_rows import ParquetRows
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.classic.stored_files import StoredFiles
from binlog_storage.disk.read_only_disk import ReadableFile
from binlog_storage.redo.reader import RedoReader
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.dumps.large_group_frames import LargeGroupFrames
from binlog_server.metrics import http
from binlog_server.relay.gate import Gate
from binlog_server.sessions.session import ClientSession
from binlog_server.sql.runner import Runner
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement import Statement
from binlog_server.sql.view import Result
from tests.fuzz import frames
from tests.fuzz.mutation import mutated
from tests.fuzz.registry import TARGETS
from tests.fuzz.runner import Run, Tally

CORPUS = Path(__file__).parent / "corpus"
NEW_INPUTS = 60

pytestmark = pytest.mark.timeout(300)


def run(name: str, seed: object, inputs: int) -> Tally:
    return Run(TARGETS[name](), random.Random(str(seed))).go_on(lambda t: t.inputs < inputs)


def corpus() -> list[Any]:
    return [
        pytest.param(path, id=f"{path.parent.name}/{path.name}")
        for path in sorted(CORPUS.glob("*/*"))
    ]


@pytest.mark.parametrize("path", corpus())
def test_what_was_found_once(path: Path) -> None:
    found = Run(TARGETS[path.parent.name](), random.Random(0)).try_one(path.read_bytes())
    assert found is None, found.trace


@pytest.mark.by_turns(5)
@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs(name: str, rng: random.Random) -> None:
    seed = rng.random()
    tally = run(name, seed, NEW_INPUTS)
    assert [found.trace for found in tally.found] == [], f"seed {seed}"
    assert tally.inputs == NEW_INPUTS


# --- what is planted ---


def _log_in_badly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoginRequest, "parse", lambda payload: struct.unpack("<40s", payload))


def _trust_a_length(patch: pytest.MonkeyPatch) -> None:
    def parse(payload: bytes) -> Command:
        if payload[:1] == b"\x15":
            bytes(int.from_bytes(payload[1:5], "big") << 6)
        return parse_command(payload)

    patch.setattr("binlog_protocol.connection.server.parse_command", parse)


def _let_an_error_out(patch: pytest.MonkeyPatch) -> None:
    run = SqlSession.run

    def careless(self: SqlSession, parsed: Callable[[], Statement]) -> Result:
        statement = parsed()
        if "Lease" in type(statement).__name__:
            raise KeyError(statement)
        return run(self, lambda: statement)

    patch.setattr(SqlSession, "run", careless)


def _store_other_bytes(patch: pytest.MonkeyPatch) -> None:
    feed = EventGroupAssembler.feed

    def careless(self: EventGroupAssembler, data: bytes) -> object:
        whole = feed(self, data)
        if isinstance(whole, EventGroup):
            return whole._replace(payload=whole.payload[:-1] + bytes([whole.payload[-1] ^ 1]))
        return whole

    patch.setattr(EventGroupAssembler, "feed", careless)
    patch.setattr(Gate, "takes_runs", False)


def _believe_a_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "binlog_server.relay.upstream_groups.number", lambda name, text, highest: int(text)
    )


def _believe_every_page(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("binlog_storage.ibb.page.is_sound", lambda data: True)


def _forget_what_was_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RedoReader, "_require_end", lambda self, end: None)
    patch.setattr("binlog_storage.binlog.opening.read_published", lambda disk: None)


def _believe_every_block(patch: pytest.MonkeyPatch) -> None:
    def blocks(file: ReadableFile, at: int) -> Iterator[bytes]:
        while at < file.size():
            size = int.from_bytes(file.pread(4, at), "little")
            yield file.pread(size, at + 8)
            at += 8 + size

    patch.setattr("binlog_storage.tables.snapshot._blocks", blocks)


def _ask_for_no_rights(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "binlog_server.sql_commit.held_statements.require_on",
        lambda session, privilege, table: None,
    )


def _believe_that_files_follow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredFiles, "_require_followed", lambda self, number, following: None)


def _believe_every_part(patch: pytest.MonkeyPatch) -> None:
    # Its bytes, its columns, and what the manifest says of it: each of them would find most of it alone.
    patch.setattr(OpenedPart, "_check", lambda self, otherwise: None)
    patch.setattr(ParquetRows, "_check_heads", lambda self, rows, begins: None)
    patch.setattr(PartReader, "_compare", lambda self, told: None)


def _hand_on_what_aiohttp_says(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http._Guard, "_refuse", lambda self, status: self._below.write(b"no"))


def _read_on_behind_a_page(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Any, form: struct.Struct) -> object:
        self._at += form.size
        return form.unpack_from(self._data, self._at - form.size)

    patch.setattr("binlog_storage.classic.gtid_index._Items._item", careless)


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "handshake": _log_in_badly,
    "commands": _trust_a_length,
    "sql": _let_an_error_out,
    "tables": _ask_for_no_rights,
    "upstream": _store_other_bytes,
    "masters": _believe_a_number,
    "stores": _believe_every_page,
    "redo": _forget_what_was_durable,
    "rows": _believe_every_block,
    "classic_stores": _believe_that_files_follow,
    "gtid_indexes": _read_on_behind_a_page,
    "archives": _believe_every_part,
    "http": _hand_on_what_aiohttp_says,
}


def _quote_what_is_no_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.fuzz.readers.event_info", lambda event: event.decode("ascii"))


def _lose_a_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.fuzz.targets.sessions._SETTLE_S", 0.1)

    async def careless(self: Runner, *told: object) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
        await asyncio.sleep(1)

    patch.setattr(Runner, "answer", careless)


def _fail_in_a_large_group(patch: pytest.MonkeyPatch) -> None:
    def careless(self: LargeGroupFrames, *told: object, **more: object) -> object:
        raise KeyError("its end")

    patch.setattr(LargeGroupFrames, "__init__", careless)


def _expect_good_records(patch: pytest.MonkeyPatch) -> None:
    def careless(self: ClientSession, reason: str) -> None:
        assert not self._connection.uses_tls, reason

    patch.setattr(ClientSession, "tls_failed", careless)


def _take_any_group_for_the_last_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("binlog_server.relay.guard.compare", lambda ours, theirs: None)


def _forget_what_came_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "tests.fuzz.targets.stores._append", lambda engine, payload, gtid, way: engine.sync()
    )


MORE_PLANTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("upstream", _quote_what_is_no_text),
    ("sql", _lose_a_session),
    ("stores", _forget_what_came_last),
    ("commands", _fail_in_a_large_group),
    ("handshake", _expect_good_records),
    ("masters", _take_any_group_for_the_last_one),
]


def test_there_is_a_plant_for_each() -> None:
    assert list(PLANTS) == list(TARGETS)


@pytest.mark.by_turns(6)
@pytest.mark.parametrize(("name", "plant"), [*PLANTS.items(), *MORE_PLANTS])
def test_a_mistake_is_found(
    name: str, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    tally = Run(TARGETS[name](), random.Random(8)).go_on(lambda t: t.inputs < 2000 and not t.found)
    assert tally.found


# --- the runner ---


class Fake:
    """Does with an input what its first byte says."""

    name = "fake"
    time_s = 0.01
    per_life = 5

    def __init__(self) -> None:
        self.lives = 0
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        self.lives += 1

    def close(self) -> None:
        self.is_open = False

    def make(self, rng: random.Random) -> bytes:
        return mutated(b"a", rng)

    def run(self, data: bytes) -> None:
        assert self.is_open
        match data[:1]:
            case b"!":
                raise KeyError(data)
            case b"T":
                end = time.thread_time() + 0.03
                while time.thread_time() < end:
                    pass
            case b"M":
                bytearray(1 << 32)


@pytest.mark.parametrize(
    ("data", "why"), [(b"!", "KeyError"), (b"T", "it takes 0.0"), (b"M", "MemoryError")]
)
def test_what_counts_as_found(data: bytes, why: str) -> None:
    assert Run(Fake(), random.Random(0)).try_one(b"ok") is None

    class Always(Fake):
        def make(self, rng: random.Random) -> bytes:
            return data

    tally = Run(Always(), random.Random(0)).go_on(lambda t: t.inputs < 3)
    assert [found.data for found in tally.found] == [data]  # once, however often it comes
    assert tally.found[0].why.startswith(why)


def test_a_seed_repeats_a_run() -> None:
    made = []
    for _ in range(2):
        target = TARGETS["sql"]()
        chance = random.Random("7/sql")
        made.append([target.make(chance) for _ in range(200)])
    assert made[0] == made[1]
    assert len(set(made[0])) > 190


@given(st.lists(st.binary(max_size=50)))
def test_frames(parts: list[bytes]) -> None:
    assert frames.split(frames.joined(parts)) == parts


@given(st.binary(max_size=200))
def test_any_bytes_are_parts(data: bytes) -> None:
    assert sum(map(len, frames.split(data))) <= len(data)
