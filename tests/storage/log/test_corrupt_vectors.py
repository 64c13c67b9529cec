"""The damaged vectors: 50 ways in which files go wrong, one change each from the set `corrupt_base`.

`DETECTED` tells for each set the first words of our error and how many whole groups came before it. `HARMLESS` sets
must read as if nothing were wrong: nothing that a reader needs was changed in them.
"""

from __future__ import annotations

from typing import Any

import pytest
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import CorruptBinlog

from tests.storage import vectors

CRC = "Page corruption (invalid crc32 checksum"
SIZE = "Invalid/unsupported page size in InnoDB binlog file"
NO_END = "Binlog record missing end chunk"
STRAY = "Binlog record starts with continuation chunk"
CUT = "binlog tablespace truncated in the middle of record"
ENDS = "the data of the file ends here, but it has a successor"
WRONG_TYPE = "Wrong chunk type"
FORWARD = "out-of-band reference to"

# name: (whole groups before the error, how the reason begins)
DETECTED = {
    "corrupt_flip_data": (23, CRC),
    "corrupt_flip_crc": (23, CRC),
    "corrupt_flip_unused_tail": (38, CRC),
    "corrupt_chunk_len_long": (5, "Invalid chunk length"),
    "corrupt_chunk_len_ffff": (5, "Invalid chunk length"),
    "corrupt_chunk_len_plus1": (6, STRAY),  # the sixth carries the byte too many
    "corrupt_no_last_flag": (5, NO_END),
    "corrupt_cont_cleared": (23, NO_END),
    "corrupt_cont_type_changed": (23, NO_END),
    "corrupt_stray_cont": (7, STRAY),
    "corrupt_stray_cont_first": (
        0,
        STRAY,
    ),  # nothing comes before page 1 of file 0 that could go on there
    "corrupt_state_in_record_bad_type": (23, NO_END),
    "corrupt_type_zero_mid": (7, ENDS),
    "corrupt_zeroed_page": (23, ENDS),
    "corrupt_zero_crc_page": (34, CRC),
    "corrupt_oob_ref_commit": (16, WRONG_TYPE),
    "corrupt_oob_ref_mid": (16, "Invalid chunk length"),
    "corrupt_oob_ref_state": (16, WRONG_TYPE),
    "corrupt_oob_ref_zero": (49, FORWARD),
    "corrupt_oob_ref_no_file": (49, FORWARD),
    "corrupt_oob_ref_beyond": (49, FORWARD),
    "corrupt_oob_child_wrong": (16, WRONG_TYPE),
    "corrupt_oob_node_is_commit": (16, WRONG_TYPE),
    "corrupt_short_commit": (56, "Short chunk"),
    "corrupt_short_oob": (56, "Short chunk"),
    "corrupt_trunc_page_mid": (38, "the file ends behind its header page"),
    "corrupt_trunc_at_page": (23, "the group does not split into events"),
    "corrupt_trunc_only": (23, CUT),
    "corrupt_trunc_header": (0, "the file ends inside its header page"),
    "corrupt_missing_next": (38, CUT),
    "corrupt_header_crc": (0, CRC),
    "corrupt_header_crc508": (0, "Invalid checksum on first page, cannot read binlog file"),
    "corrupt_header_page_crc": (0, CRC),
    "corrupt_header_magic": (0, "no binlog file: wrong magic number"),
    "corrupt_header_zero512": (0, "the header is empty, but its page is not"),
    "corrupt_header_major2": (0, "Unsupported version of InnoDB binlog file"),
    "corrupt_header_pagesize_9": (0, SIZE),
    "corrupt_header_pagesize_12": (0, SIZE),
    "corrupt_header_pagesize_13": (0, SIZE),
    "corrupt_header_pagesize_15": (0, SIZE),
    "corrupt_header_pagesize_16": (0, SIZE),
    "corrupt_header_pagesize_46": (0, SIZE),
    "corrupt_header_file_no_9": (0, "the header says file number 9, the name says 0"),
    "corrupt_header_file_no_1": (0, "the header says file number 1, the name says 0"),
    "corrupt_second_file_no": (38, "the header says file number 5, the name says 1"),
    "corrupt_zero_tail": (9, ENDS),
    "corrupt_gap": (38, CUT),
}

HARMLESS = {
    "corrupt_flip_zero_page",  # behind the end of the data: no reader looks there; opening the store refuses it
    "corrupt_header_minor9",
    "corrupt_interval_0",
}


def test_the_lists_are_whole_and_apart() -> None:
    names = [entry["name"] for entry in vectors.corrupt_sets()]
    assert len(names) == len(set(names)) == 50
    listed = [*DETECTED, *HARMLESS]
    assert sorted(listed) == sorted(names)


def by_name(names: set[str]) -> list[Any]:
    return [
        pytest.param(entry, id=entry["name"])
        for entry in vectors.corrupt_sets()
        if entry["name"] in names
    ]


def base_groups() -> list[vectors.ReadGroup]:
    return vectors.walk(vectors.unpack(vectors.sound_set("corrupt_base"))).groups


@pytest.mark.parametrize("vector", by_name(set(DETECTED)))
def test_detected(vector: dict[str, Any]) -> None:
    count, reason = DETECTED[vector["name"]]
    outcome = vectors.walk(vectors.unpack(vector))
    assert outcome.error is not None
    assert outcome.error.reason.startswith(reason)
    assert len(outcome.groups) == count
    right = count - 1 if vector["name"] == "corrupt_chunk_len_plus1" else count
    assert outcome.groups[:right] == base_groups()[:right]
    assert f"binlog-{outcome.error.file_no:06d}.ibb" in str(outcome.error)
    assert f"offset {outcome.error.offset}" in str(outcome.error)


@pytest.mark.parametrize("vector", by_name(HARMLESS))
def test_harmless(vector: dict[str, Any]) -> None:
    assert vectors.walk(vectors.unpack(vector)) == (base_groups(), None)


def test_a_bit_in_an_empty_page_refuses_the_store() -> None:
    (entry,) = (e for e in vectors.corrupt_sets() if e["name"] == "corrupt_flip_zero_page")
    with pytest.raises(CorruptBinlog, match="an empty page, but later pages hold data"):
        IbbEngine(vectors.unpack(entry), StoreOptions(max_binlog_size=1 << 16))
