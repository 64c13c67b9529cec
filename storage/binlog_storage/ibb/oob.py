"""Out-of-band data (type 3): a group too large for one commit record, as a forest of perfect binary trees.

    ci index, ci left_file, ci left_offset, ci right_file, ci right_offset, data (1 byte or more)

(0, 0) is null: offset 0 is never a record. Nodes are numbered from 0 per list, and each is written once, when its
data is known, so it can point only backwards:

    last two trees of equal height   the new node joins them: left = the last but one, right = the last
    otherwise                        the new node is a leaf: right = the root of the last tree before it, left = null

     i   kind   left right   heights after         Walking back from the last root gives 0, 1, 2, ... again:
     0   leaf   -    -       1                       inner node   left, right, itself
     1   leaf   -    0       1 1                     leaf         on the left edge of its tree: the earlier
     2   inner  0    1       2                                    forest (its right link) first, then itself;
     3   leaf   -    2       2 1                                  elsewhere: only itself

A reader needs a stack as deep as the sum of the heights of all trees, about (log2 n)**2 / 2.
(MariaDB: `storage/innobase/handler/innodb_binlog.cc`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb import compressed_int
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.commit import OobList

NULL = Position(0, 0)
PIECE_BYTES_MAX = 512 * 1024


class OobNode(NamedTuple):
    """One record of out-of-band data."""

    number: int
    left: Position
    right: Position
    data: bytes


def encode(node: OobNode) -> bytes:
    """The body of the record."""
    ci = compressed_int.encode
    return b"".join((ci(node.number), *map(ci, node.left), *map(ci, node.right), node.data))


def decode(data: bytes) -> OobNode:
    """Parse a body; `ValueError` with the reason if it is malformed."""
    (index, *places), at = compressed_int.decode_some(data, 0, 5)
    return OobNode(index, Position(*places[:2]), Position(*places[2:]), data[at:])


class Forest:
    """The writer's side: decides the links of the next node; `count` nodes so far. One owner."""

    def __init__(self) -> None:
        self._roots: list[tuple[Position, int]] = []  # (place, height), heights strictly decreasing
        self._first = NULL
        self.count = 0

    def next_node(self, data: bytes) -> OobNode:
        """The node that holds `data`. Tell `placed` where it went before asking for another."""
        roots = self._roots
        if len(roots) >= 2 and roots[-1][1] == roots[-2][1]:
            return OobNode(self.count, roots[-2][0], roots[-1][0], data)
        return OobNode(self.count, NULL, roots[-1][0] if roots else NULL, data)

    def placed(self, place: Position) -> None:
        """The node from `next_node` was written at `place`."""
        roots = self._roots
        if len(roots) >= 2 and roots[-1][1] == roots[-2][1]:
            height = roots.pop()[1]
            roots[-1] = (place, height + 1)
        else:
            roots.append((place, 1))
        if self.count == 0:
            self._first = place
        self.count += 1

    def copy(self) -> Forest:
        """A copy of the forest. A savepoint is one; a rollback to it goes on with another, with the same numbers."""
        forest = Forest()
        forest._roots = list(self._roots)
        forest._first = self._first
        forest.count = self.count
        return forest

    def reference(self) -> OobList:
        """The reference to this forest for the commit record; the forest must hold a node."""
        return OobList(self.count, self._first, self._roots[-1][0])


def walk(
    last: Position, before: Position, read_node: Callable[[Position], OobNode]
) -> Iterator[bytes]:
    """The data of a list in the order in which it was written.

    Args:
        last: root of the last tree, from the commit record.
        before: place of that commit record. Every reference must point strictly before the record that holds it:
            that is what makes a walk over damaged files end.
        read_node: reads and checks the record at a place.

    Raises `CorruptBinlog` for a reference that points forward, or nowhere, or to a node that is not the next one.
    """
    # (place, holder, may follow the prior link) is still to be read; (place, node) is ready to go out.
    stack: list[tuple[Position, Position, bool] | tuple[Position, OobNode]] = [(last, before, True)]
    count = 0
    latest = NULL
    while stack:
        todo = stack.pop()
        if len(todo) == 2:
            place, node = todo
            # True of every sound forest; and shared children cannot multiply: 60 nodes can ask for 2**60 visits.
            if node.number != count or place <= latest:
                raise CorruptBinlog(
                    *place, f"out-of-band node {node.number} where node {count} should be"
                )
            count += 1
            latest = place
            yield node.data
            continue
        place, holder, leftmost = todo
        if place >= holder or place == NULL:
            raise CorruptBinlog(
                *holder,
                f"out-of-band reference to ({place.file_no}, {place.offset}) does not point back",
            )
        node = read_node(place)
        stack.append((place, node))
        if node.left != NULL:
            stack.append((node.right, place, False))
            stack.append((node.left, place, leftmost))
        elif leftmost and node.right != NULL:
            stack.append((node.right, place, True))
