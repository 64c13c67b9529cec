from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]

def copy_ranges(data: bytes, begins: _Array, ends: _Array, offsets: _Array) -> bytes: ...
def count_events(data: bytes, ends: _Array) -> int: ...
def count_rows(
    data: bytes, ends: _Array, first: bytes, second: bytes | None, counts: _Array, sums: _Array
) -> int: ...
def fill_events(
    data: bytes,
    ends: _Array,
    type: _Array,
    begin: _Array,
    end: _Array,
    group: _Array,
    number: _Array,
) -> bool: ...
def find_likes(
    data: bytes,
    type: _Array,
    begin: _Array,
    end: _Array,
    group: _Array,
    kinds: bytes,
    looked_at: _Array,
    likes: _Array,
) -> None: ...
def read_column(
    reader: int,
    data: bytes,
    at: _Array,
    nulls: _Array | None,
    out: _Array,
    one: int = ...,
    other: int = ...,
) -> int: ...
def read_rows(
    data: bytes,
    ends: _Array,
    first: bytes,
    second: bytes | None,
    plans: tuple[tuple[int, int, int, _Array, _Array], ...],
    nulls: _Array,
    flags: _Array,
) -> bool: ...
