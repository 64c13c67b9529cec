"""A hash chain over the groups of each domain, by which two histories are told apart without laying them side by side.

    h(0) = nothing              in front of the first group of a block
    h(n) = BLAKE2b-128(group n in normal form, keyed with h(n-1))

A *block* is the groups of one domain that follow one another there, and whose sequence numbers divided by
`BLOCK_NUMBERS` are the same: so two stores cut the same history at the same places, wherever each begins and however
its domains are mixed. The digest of a block is the last h of it. Groups are taken as they are stored, relayed and
archived: byte by byte, without checksums and positions in files.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from binlog_protocol.gtid import Gtid

BLOCK_NUMBERS: Final = 1024
DIGEST_BYTES: Final = 16


class Block(NamedTuple):
    """Consecutive groups of one domain: the first and the last of them, how many, and the last h."""

    first: Gtid
    last: Gtid
    groups: int
    digest: bytes

    @property
    def number(self) -> int:
        """Where it is in its domain: ascending where sequence numbers are."""
        return block_number(self.first)


def block_number(gtid: Gtid) -> int:
    """The number of the block in which a group is."""
    return gtid.seq_no // BLOCK_NUMBERS


def next_digest(before: bytes, pieces: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """The h of a group that comes behind `before`, in normal form, cut anywhere."""
    found = blake2b(digest_size=DIGEST_BYTES, key=before)
    for piece in pieces:
        found.update(piece)
    return found.digest()


class GroupChains:
    """The chains of all domains, as far as groups were added. Memory holds one block a domain."""

    def __init__(self, open_blocks: Iterable[Block] = ()) -> None:
        """`open_blocks`: those of an earlier one, which is gone on with."""
        self._open = {block.first.domain_id: block for block in open_blocks}

    @property
    def open_blocks(self) -> list[Block]:
        """The blocks that may go on, by domain."""
        return [block for _, block in sorted(self._open.items())]

    def add(self, gtid: Gtid, pieces: Iterable[bytes | bytearray | memoryview]) -> Block | None:
        """The next group. Returns the block of its domain that has ended in front of it."""
        before = self._open.get(gtid.domain_id)
        if before is not None and block_number(before.first) == block_number(gtid):
            _, _, groups, digest = before
            self._open[gtid.domain_id] = Block(
                before.first, gtid, groups + 1, next_digest(digest, pieces)
            )
            return None
        self._open[gtid.domain_id] = Block(gtid, gtid, 1, next_digest(b"", pieces))
        return before
