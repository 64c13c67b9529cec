"""The hash chains of closed files, remembered in a folder: a history that was compared once is read from there.

Also remembered is which blocks with other bytes say the same.

The blocks of a file depend on those that are open at its beginning, so these are a part of what is asked for. As with
facts of files, what is kept can be made again: a file that is missing, damaged or older costs the time to read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from binlog_protocol.errors import ServerError
from binlog_protocol.groups.group_chain import DIGEST_BYTES, Block, GroupChains
from binlog_protocol.gtid import Gtid

from binlog_storage.archive.group_files import FileMemory, GroupFile

_FORMAT: Final = 1
_PAIRS: Final = "pairs"


class ChainedFile(NamedTuple):
    """The blocks that have ended in a file, in the order in which they did, and those that are open behind it."""

    ended: list[Block]
    left: list[Block]


def chained(file: GroupFile, opened: Sequence[Block]) -> ChainedFile:
    """Read it. Raises as its groups."""
    chains = GroupChains(opened)
    ended = []
    for group in file.groups():
        if group.gtid is not None:
            block = chains.add(group.gtid, group.pieces())
            if block is not None:
                ended.append(block)
    return ChainedFile(ended, chains.open_blocks)


class PairCounts(NamedTuple):
    """Of two blocks of the same GTIDs that do not differ: how many groups have the same bytes, say the same, or are in
    another form."""

    groups: int
    anew: int
    unlike: int


class RememberedChains:
    """Of two histories or more. Without a folder nothing is remembered."""

    def __init__(self, folder: Path | None = None) -> None:
        self._memory: Final = FileMemory(folder, ".chain.json")
        self._used: Final[set[str]] = set()
        self._pairs_memory: Final = FileMemory(folder, ".pairs.json")
        self._pairs: Final[dict[str, PairCounts]] = {}
        data = self._pairs_memory.get(_PAIRS)
        self._known: Final = {} if data is None else _parsed_pairs(data)

    def pair(self, one: Block, other: Block) -> PairCounts | None:
        """What was found of two blocks, whichever is named first; None if they are to be laid side by side."""
        return self._known.get(_pair_key(one, other))

    def put_pair(self, one: Block, other: Block, counts: PairCounts) -> None:
        """They do not differ. Remembered with `keep`."""
        self._pairs[_pair_key(one, other)] = counts

    def of(self, file: GroupFile, opened: Sequence[Block]) -> ChainedFile:
        """Its blocks, where these are open at its beginning: remembered, or read now. Raises as its groups."""
        self._used.add(file.key)
        begin = _listed(opened)
        data = self._memory.get(file.key)
        found = None if data is None else _parsed(data, file.key, begin)
        if found is None:
            found = chained(file, opened)
            self._memory.put(file.key, _built(found, file.key, begin))
        return found

    def keep(self) -> None:
        """Keep what was found, and forget files and pairs that were not asked for."""
        self._memory.keep_only(self._used)
        self._pairs_memory.put(_PAIRS, json.dumps([_FORMAT, self._pairs]).encode())


def _pair_key(one: Block, other: Block) -> str:
    digests = sorted((one.digest.hex(), other.digest.hex()))
    return f"{one.first} {one.last} {one.groups} {' '.join(digests)}"


def _parsed_pairs(data: bytes) -> dict[str, PairCounts]:
    """Nothing of what is damaged."""
    try:
        format_, pairs = json.loads(data)
        if format_ != _FORMAT:
            return {}
        return {str(key): PairCounts(*map(int, counts)) for key, counts in pairs.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _listed(blocks: Sequence[Block]) -> list[list[Any]]:
    return [[str(b.first), str(b.last), b.groups, b.digest.hex()] for b in blocks]


def _built(found: ChainedFile, key: str, begin: list[list[Any]]) -> bytes:
    return json.dumps([_FORMAT, key, begin, _listed(found.ended), _listed(found.left)]).encode()


def _parsed(data: bytes, key: str, begin: list[list[Any]]) -> ChainedFile | None:
    """None: it is damaged, of another file, or of one that something else came before."""
    try:
        format_, of, behind, ended, left = json.loads(data)
        if (format_, of, behind) != (_FORMAT, key, begin):
            return None
        return ChainedFile(*([_block(one) for one in blocks] for blocks in (ended, left)))
    except (ValueError, TypeError, ServerError, RecursionError):
        return None


def _block(values: list[Any]) -> Block:
    """Raises `ValueError`, `TypeError`, `ServerError`."""
    first, last, groups, digest = values
    found = Block(Gtid.parse(first), Gtid.parse(last), int(groups), bytes.fromhex(digest))
    if len(found.digest) != DIGEST_BYTES:
        raise ValueError("digest")
    return found
