"""A store of any size that takes no time to make, and hardly any disk: valid files, mostly holes.

Each closed file has its header, the state of its first page, and at each interval a state record with one group behind
it, as if what lies between had been written; a search or a start never looks there. Into the last file groups are
really written, by the store itself, so that its end is where an end is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.options import STATE_INTERVAL_DEFAULT
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import BREAKS_KEY, StateStore
from binlog_storage.ibb import commit, gtid_state
from binlog_storage.ibb.chunk import RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, seal

from benchmarks.store_process import server_options
from tests.storage.groups import group
from tests.storage.plain_pages import chunk

GROUP_BYTES: Final = 16_000
_SEQ_NOS_AT_ONCE: Final = 1000  # what "would have been written" between two states
_INTERVAL_PAGES: Final = STATE_INTERVAL_DEFAULT // PAGE_SIZE


def make(directory: Path, closed_files: int, file_bytes: int, written_bytes: int) -> None:
    """A store with so many files before the last one, and so many bytes in that. The directory is made."""
    directory.mkdir(parents=True)
    seq_no = 0
    for file_no in range(closed_files + 1):
        last = file_no == closed_files
        seq_no = _make_file(directory, file_no, file_bytes // PAGE_SIZE, seq_no, last=last)
    disk = OsDisk(directory)
    facts = StateStore(disk)
    facts.set(BREAKS_KEY, [])
    engine = IbbEngine(disk, server_options(file_bytes), facts=facts)
    for _ in range(written_bytes // GROUP_BYTES):
        seq_no += 1
        engine.append(*group(Gtid(0, 1, seq_no), GROUP_BYTES))
    engine.close()


def _make_file(directory: Path, file_no: int, pages: int, seq_no: int, *, last: bool) -> int:
    """Returns the last sequence number in it."""
    header = FileHeader(file_no, pages, 0, _INTERVAL_PAGES, file_no)
    with (directory / file_name(file_no)).open("xb") as file:
        file.truncate(pages * PAGE_SIZE)
        file.write(header.build())
        for page_no in [1] if last else [1, *range(_INTERVAL_PAGES, pages, _INTERVAL_PAGES)]:
            state = [Gtid(0, 1, seq_no)] if seq_no else []
            seq_no += _SEQ_NOS_AT_ONCE
            payload, _ = group(Gtid(0, 1, seq_no))
            data = chunk(RecordType.GTID_STATE, gtid_state.encode(BinlogState(state)))
            data += chunk(RecordType.COMMIT, commit.encode(payload))
            page = bytearray(PAGE_SIZE)
            page[: len(data)] = data
            file.seek(page_no * PAGE_SIZE)
            file.write(seal(page))
    return seq_no
