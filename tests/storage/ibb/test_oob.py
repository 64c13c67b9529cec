"""Out-of-band nodes: the bytes and the table of spec 6.1 and 6.2, the walk, and damaged forests."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb import oob
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.oob import NULL, Forest, OobNode

BYTES = [
    (OobNode(0, NULL, NULL, b"ABC"), "00 00 00 00 00 41 42 43"),
    (OobNode(1, NULL, Position(0, 16389), b"DEF"), "08 00 00 00 2a 00 02 44 45 46"),
    (
        OobNode(2, Position(0, 16389), Position(0, 16400), b"GHI"),
        "10 00 2a 00 02 00 82 00 02 47 48 49",
    ),
]

# node: (left, right) by node number, roots with heights afterwards
TABLE: list[tuple[int | None, int | None, str]] = [
    (None, None, "0(1)"),
    (None, 0, "0(1) 1(1)"),
    (0, 1, "2(2)"),
    (None, 2, "2(2) 3(1)"),
    (None, 3, "2(2) 3(1) 4(1)"),
    (3, 4, "2(2) 5(2)"),
    (2, 5, "6(3)"),
    (None, 6, "6(3) 7(1)"),
    (None, 7, "6(3) 7(1) 8(1)"),
    (7, 8, "6(3) 9(2)"),
]


def place_of(number: int | None) -> Position:
    """Where node `number` lies here; two files, growing."""
    return NULL if number is None else Position(number // 40, 16384 + 20 * number)


def build(count: int) -> tuple[Forest, dict[Position, OobNode]]:
    forest, nodes = Forest(), {}
    for number in range(count):
        node = forest.next_node(b"%d," % number)
        nodes[place_of(number)] = node
        forest.placed(place_of(number))
    return forest, nodes


def walk(last: Position, before: Position, read: Callable[[Position], OobNode]) -> bytes:
    return b"".join(oob.walk(last, before, read))


@pytest.mark.parametrize(("node", "text"), BYTES)
def test_bytes(node: OobNode, text: str) -> None:
    assert oob.encode(node) == bytes.fromhex(text)
    assert oob.decode(bytes.fromhex(text)) == node


@pytest.mark.parametrize("size", range(9))
def test_every_cut_is_short(size: int) -> None:
    with pytest.raises(ValueError, match="Short chunk"):
        oob.decode(bytes.fromhex("10 00 2a 00 02 00 82 00 02")[:size])


def test_the_table_of_the_forest() -> None:
    forest = Forest()
    for number, (left, right, roots) in enumerate(TABLE):
        node = forest.next_node(b"x")
        assert node == OobNode(number, place_of(left), place_of(right), b"x")
        forest.placed(place_of(number))
        shown = " ".join(
            f"{(place.offset - 16384) // 20}({height})" for place, height in forest._roots
        )
        assert shown == roots
        reference = forest.reference()
        assert reference == (
            number + 1,
            place_of(0),
            place_of(int(roots.split()[-1].split("(")[0])),
        )


def test_thirteen_nodes() -> None:
    forest, _ = build(13)
    heights = [height for _, height in forest._roots]
    assert heights == [3, 2, 2]
    assert forest.reference().last == place_of(12)


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("count", range(1, 201))
def test_the_walk_gives_the_order_of_writing(count: int) -> None:
    forest, nodes = build(count)
    read: list[Position] = []

    def read_node(place: Position) -> OobNode:
        read.append(place)
        return nodes[place]

    found = walk(forest.reference().last, Position(9, 16384), read_node)
    assert found == b"".join(b"%d," % number for number in range(count))
    assert len(read) == count, "each node is read once"


@pytest.mark.parametrize(
    ("number", "left", "right"),
    [
        pytest.param(2, 2, 1, id="itself, left"),
        pytest.param(2, 0, 2, id="itself, right"),
        pytest.param(7, None, 7, id="leaf to itself"),
        pytest.param(7, None, 9, id="leaf forward"),
        pytest.param(7, None, 2, id="leaf to a tree inside"),
        pytest.param(7, None, None, id="leaf to nothing"),
        pytest.param(2, 6, 1, id="forward"),
        pytest.param(5, 3, 6, id="cycle over two"),
        pytest.param(6, 2, None, id="no right child"),
        pytest.param(6, 2, 2, id="the same child twice"),
        pytest.param(6, 5, 2, id="children swapped"),
        pytest.param(5, 3, 1, id="a child of another tree"),
    ],
)
def test_damaged_links(number: int, left: int | None, right: int | None) -> None:
    """Ten nodes, one of which has other links."""
    forest, nodes = build(10)
    nodes[place_of(number)] = OobNode(number, place_of(left), place_of(right), b"bad")
    with pytest.raises(CorruptBinlog):
        walk(forest.reference().last, Position(9, 16384), lambda place: nodes[place])


def test_a_leaf_inside_a_tree_keeps_its_prior_link_to_itself() -> None:
    """It is there for the time when the leaf is the last tree; afterwards nobody follows it."""
    forest, nodes = build(7)
    nodes[place_of(1)] = OobNode(1, NULL, place_of(6), b"1,")
    found = walk(forest.reference().last, Position(9, 16384), nodes.__getitem__)
    assert found == b"0,1,2,3,4,5,6,"


def test_a_list_behind_its_commit() -> None:
    forest, nodes = build(3)
    with pytest.raises(CorruptBinlog, match="does not point back"):
        walk(forest.reference().last, place_of(2), lambda place: nodes[place])
    with pytest.raises(CorruptBinlog, match="does not point back"):
        walk(NULL, place_of(2), lambda place: nodes[place])


def test_shared_children_do_not_multiply() -> None:
    """Sixty nodes, each with the one before as both children: 2**60 visits, if nobody looked."""
    nodes = {place_of(0): OobNode(0, NULL, NULL, b"0")}
    for number in range(1, 60):
        child = place_of(number - 1)
        nodes[place_of(number)] = OobNode(number, child, child, b"x")
    pieces = oob.walk(place_of(59), Position(9, 16384), nodes.__getitem__)
    with pytest.raises(CorruptBinlog):
        list(itertools.islice(pieces, 1000))
