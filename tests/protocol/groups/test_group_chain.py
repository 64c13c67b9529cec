"""Blocks of two histories are alike wherever each begins, and differ where a group does."""

from __future__ import annotations

from itertools import groupby

from binlog_protocol.groups.group_chain import BLOCK_NUMBERS, Block, GroupChains, block_number
from binlog_protocol.gtid import Gtid

HISTORY = [Gtid(n % 3, 1, 1 + n // 3) for n in range(9 * BLOCK_NUMBERS)]


def blocks_of(gtids: list[Gtid], other: Gtid | None = None) -> list[Block]:
    chains = GroupChains()
    found = []
    for number, gtid in enumerate(gtids):
        if number % 1000 == 999:  # gone on with by another one
            chains = GroupChains(chains.open_blocks)
        text = f"{gtid}{'!' if gtid == other else ''}".encode()
        found.append(chains.add(gtid, [text[:3], text[3:]]))
    return sorted(block for block in (*found, *chains.open_blocks) if block is not None)


def test_blocks() -> None:
    """They do not hang on the order between domains, on pieces, or on where a history begins."""
    found = blocks_of(HISTORY)
    assert found == blocks_of(sorted(HISTORY))
    expected = [
        list(block) for _, block in groupby(sorted(HISTORY), lambda g: (g[0], block_number(g)))
    ]
    assert [(b.first, b.last, b.groups) for b in found] == [
        (block[0], block[-1], len(block)) for block in expected
    ]
    later = blocks_of(HISTORY[3 * BLOCK_NUMBERS + 100 :])
    assert len(set(later) & set(found)) == 6  # all but the one in which each domain begins


def test_a_difference_is_in_its_block_alone() -> None:
    other = Gtid(1, 1, BLOCK_NUMBERS + 5)
    (differs,) = set(blocks_of(HISTORY)) - set(blocks_of(HISTORY, other))
    assert differs.first.domain_id == 1
    assert differs.number == block_number(other)
    without = blocks_of([gtid for gtid in HISTORY if gtid != other])
    assert set(blocks_of(HISTORY)) - set(without) == {differs}
