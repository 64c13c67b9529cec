"""Sizes of the pages of a Parquet file, from the pages' headers; and what its footer says of columns. Pure.

A footer tells how large a column is, unpacked; a reader believes what stands in front of each page. So the memory that
a column takes is known, before it is read, by going through its pages. Of the header of a page, a struct of Thrift's
compact protocol, these fields count; all others are passed over.

    1  i32  type
    2  i32  size of the page, unpacked
    3  i32  size of the page, as it is in the file: so many bytes follow the header

The footer is looked at before pyarrow is asked for a column: what it throws then in C++, where a list of counts is not
as long as the levels of the column, or a column is encrypted, nobody catches, and the process ends (Arrow 26). The file
ends with the footer, its length (u32) and `PAR1`; of it these fields count, each struct in the one in front of it:

    FileMetaData     4 row groups
    RowGroup         1 columns
    ColumnChunk      3 meta data; 8, 9 of an encrypted column
    ColumnMetaData   16 size statistics
    SizeStatistics   1 bytes of texts, 2 counts of repetition levels, 3 counts of definition levels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass

_FOOTER_TAIL: Final = 8  # length, PAR1
_FOOTER_BYTES_MAX: Final = 64 << 20
_HEADER_BYTES_MAX: Final = 16 << 10
_PAGES_MAX: Final = 1 << 16
_DEPTH_MAX: Final = 8
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 0, 1, 2, 3, 7, 8
_INTEGERS: Final = (4, 5, 6)
_LISTS: Final = (9, 10)
_STRUCT: Final = 12


class BadPageHeader(ValueError):
    """Bytes that are no header of a page, or one that is not whole."""


class BadFooter(ValueError):
    """A footer that cannot be read, or says of a column what is not so."""


class ColumnLevels(NamedTuple):
    """The highest levels of a column, and whether it has texts or bytes, by the schema."""

    repetition: int
    definition: int
    has_bytes: bool


def check_footer(
    read: Callable[[int, int], bytes], size: int, columns: Sequence[ColumnLevels]
) -> None:
    """Whether each row group has these columns, and what is told of their sizes fits them. Raises `BadFooter`.

    read, size: of the file.
    """
    end = size - _FOOTER_TAIL
    length = int.from_bytes(read(4, end), "little")
    if not 0 < length <= min(end, _FOOTER_BYTES_MAX):
        raise BadFooter(f"a footer of {length} bytes")
    try:
        footer = _Header(read(length, end - length)).value(_STRUCT, 0)
        for group in _listed(footer.get(4, [])):
            chunks = _listed(group.get(1, []))
            if len(chunks) != len(columns):
                raise BadFooter(f"a row group of {len(chunks)} columns")
            for chunk, levels in zip(chunks, columns, strict=True):
                _check_chunk(chunk, levels)
    except (BadPageHeader, AttributeError, TypeError) as error:
        raise BadFooter(f"the footer: {error}") from None


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a list is none")
    return value


def _check_chunk(chunk: dict[int, Any], levels: ColumnLevels) -> None:
    if chunk.keys() & {8, 9} or 3 not in chunk:
        raise BadFooter("a column that is encrypted, or has no description")
    sizes = chunk[3].get(16, {})
    for number, level in ((2, levels.repetition), (3, levels.definition)):
        if len(_listed(sizes.get(number, []))) not in (0, level + 1):
            raise BadFooter("counts of other levels than a column has")
    if 1 in sizes and not levels.has_bytes:
        raise BadFooter("bytes of texts in a column of numbers")


def unpacked_size(read: Callable[[int, int], bytes], begin: int, size: int) -> int:
    """Bytes of a column's pages, unpacked, which lie in `size` bytes from `begin` on. Raises `BadPageHeader`.

    read: gives up to so many bytes (first) from an offset (second) on.
    """
    at, end, total = begin, begin + size, 0
    for _ in range(_PAGES_MAX):
        if at >= end:
            break
        header = _Header(read(min(_HEADER_BYTES_MAX, end - at), at))
        unpacked, packed = header.sizes()
        at += header.at + packed
        total += unpacked
    if at != end:
        raise BadPageHeader("its pages do not end where the column does")
    return total


@dataclass(eq=False)
class _Header:
    _data: bytes
    at: int = 0

    def sizes(self) -> tuple[int, int]:
        """Unpacked, and in the file; `at` is behind the header then."""
        found: dict[int, int] = {}
        self._struct(found, 0)
        unpacked, packed = found.get(2, -1), found.get(3, -1)
        if unpacked < 0 or packed < 0:
            raise BadPageHeader("a page has no size")
        return unpacked, packed

    def _struct(self, found: dict[int, int] | None, depth: int) -> None:
        for number, kind in self._fields():
            if kind in _INTEGERS:
                value = self._integer()
                if found is not None:
                    found[number] = value
            elif kind not in (_TRUE, _FALSE):
                self._skip(kind, depth)

    def value(self, kind: int, depth: int, *, in_list: bool = False) -> Any:
        """A value as Python has it; a struct by the numbers of its fields."""
        if kind == _STRUCT:
            self._require_depth(depth)
            return {number: self.value(field, depth + 1) for number, field in self._fields()}
        if kind in _LISTS:
            self._require_depth(depth)
            element, count = self._list_head()
            return [self.value(element, depth + 1, in_list=True) for _ in range(count)]
        if kind in _INTEGERS:
            return self._integer()
        if in_list or kind not in (_TRUE, _FALSE):
            self._skip(kind, depth)
        return None

    @staticmethod
    def _require_depth(depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise BadPageHeader("structs and lists are nested too deep")

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct. The caller reads its value before it asks for the next one."""
        number = 0
        while (head := self._byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self._integer()
            yield number, head & 15

    def _list_head(self) -> tuple[int, int]:
        """The type of the elements, and how many there are."""
        head = self._byte()
        return head & 15, head >> 4 if head >> 4 < 15 else self._varint()

    def _skip(self, kind: int, depth: int) -> None:
        self._require_depth(depth)
        if kind in (_TRUE, _FALSE, _BYTE):  # of a list; of a struct the first two are the value
            self._take(1)
        elif kind in _INTEGERS:
            self._integer()
        elif kind == _DOUBLE:
            self._take(8)
        elif kind == _BINARY:
            self._take(self._varint())
        elif kind in _LISTS:
            element, count = self._list_head()
            for _ in range(count):
                self._skip(element, depth + 1)
        elif kind == _STRUCT:
            self._struct(None, depth + 1)
        else:
            raise BadPageHeader(f"a field of type {kind} in the header of a page")

    def _byte(self) -> int:
        self._take(1)
        return self._data[self.at - 1]

    def _take(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise BadPageHeader("the header of a page is not whole")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise BadPageHeader("a number without an end in the header of a page")
        return value | byte << shift
