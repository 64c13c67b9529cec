from array import array
from collections.abc import Mapping

def crc32c(data: bytes | memoryview, by_instruction: bool) -> int | None: ...
def entries_encoded(seq_nos: Mapping[int, Mapping[int, int]]) -> tuple[int, bytes]: ...
def fill_page(
    page: bytearray, at: int, payloads: bytearray, ends: array[int], index: int
) -> tuple[int, int]: ...
def fill_pages(
    data: bytes | bytearray | memoryview,
    at: int,
    count: int,
    first: int,
    then: int,
    kind: int,
    page_no: int,
) -> tuple[bytes, bytearray, bytes]: ...
def take_plain_commits(page: bytes, at: int, stop: int, groups: list[bytes]) -> int: ...
