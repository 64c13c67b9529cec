from array import array
from collections.abc import Mapping
from typing import Any

def crc32c(data: bytes | memoryview, by_instruction: bool) -> int | None: ...
def entries_encoded(seq_nos: Mapping[int, Mapping[int, int]]) -> tuple[int, bytes]: ...
def fill_pages(
    data: bytes | bytearray | memoryview,
    at: int,
    count: int,
    first: int,
    then: int,
    kind: int,
    page_no: int,
) -> tuple[bytes, bytearray, bytes]: ...
def fill_record(
    page: bytearray,
    at: int,
    head: bytes,
    data: bytes | bytearray | memoryview,
    first: int,
    then: int,
    kind: int,
    page_no: int,
    begin: int,
    unlogged: bytes,
    /,
) -> tuple[bytes, bytearray, int, bytes]: ...
def fill_run(
    page: bytearray,
    at: int,
    payloads: bytearray,
    ends: array[int],
    index: int,
    more: int,
    kind: int,
    page_no: int,
    epoch: int,
    lsn: int,
    /,
) -> tuple[list[bytes], bytearray, int, int, bytes] | None: ...
def next_keys(
    rows: dict[bytes, Any], at: int, last: bytes | None, count: int, /
) -> tuple[list[bytes], int] | None: ...
def plain_commit(
    page: bytearray,
    at: int,
    payload: bytes,
    behind: bytes,
    kind: int,
    page_no: int,
    epoch: int,
    lsn: int,
    /,
) -> bytes: ...
def find_nodes(body: bytes, at: int, /) -> tuple[int, bytes]: ...
def sound_run(data: bytes) -> list[bytes]: ...
def take_writes(
    window: bytes,
    at: int,
    stop: int,
    lsn: int,
    epoch: int,
    parity: int,
    page_no: int,
    offset: int,
    page: bytearray | None,
) -> tuple[int, int, int]: ...
def take_changes(
    window: bytes,
    at: int,
    stop: int,
    lsn: int,
    epoch: int,
    unfinished: dict[int, Any],
    tables: dict[int, Any],
    committed: Any,
) -> tuple[int, int]: ...
def take_nodes(
    body: bytes,
    places: bytes,
    trx: Any,
    tables: dict[int, Any],
    table_type: type[Any],
) -> None: ...
def take_rows(
    body: bytes,
    at: int,
    tables: dict[int, Any] | None,
    table_type: type[Any],
) -> tuple[int, int]: ...
def take_plain_commits(
    pages: list[bytes],
    at: int,
    stop: int,
    base: int,
    groups: list[bytes],
    runs: list[tuple[int, int]] | None,
) -> tuple[int, int]: ...
def unpack_nodes(body: bytes, places: bytes, first: int, end: int, below: Any, /) -> Any: ...

class Node:
    def __new__(
        cls, no: int, below: Any, table: int, key: bytes, before: bytes | None, /
    ) -> Node: ...

class Version:
    row: bytes | None
    def __new__(cls, row: bytes | None, trx: Any, prev: Any, /) -> Version: ...

class PackedRows:
    def __new__(cls, rows: dict[bytes, Any], committed: Any, /) -> PackedRows: ...
    def __len__(self) -> int: ...
    @property
    def places(self) -> int: ...
    def keys(self, first: int, count: int, /) -> list[bytes]: ...
    def look(self, key: bytes, /) -> Any: ...
    def owner(self, key: bytes, /) -> Any: ...
    def records(self, table: int, first: int, count: int, /) -> tuple[bytes, int]: ...
    def settle(self) -> None: ...
    def take(self, key: bytes, /) -> Any: ...
    def undo(self, key: bytes, trx: Any, /) -> bool | None: ...
