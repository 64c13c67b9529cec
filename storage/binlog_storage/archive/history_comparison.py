"""Two histories, compared by the hash chains of their groups: whether, and where, they differ.

Each domain is compared by itself, on the range that both have: order between domains, files and formats do not count.

1. The blocks of both (`binlog_protocol.groups.group_chain`), by one reading of each.
2. Blocks that are equal are equal group by group. The others are read again, side by side, up to the first difference.
   Groups with other bytes under one GTID are compared by what they say (`group_comparison`): a replica that logs its
   master's groups anew has the same history in bytes of its own.

What was read first bounds what is compared: groups that come while this runs are left for another time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Final, NamedTuple

from binlog_protocol.groups.group_chain import Block, GroupChains
from binlog_protocol.groups.group_comparison import Likeness, compare, describe
from binlog_protocol.groups.group_content import GroupContent, content_of
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.archive.group_files import GroupFile
from binlog_storage.errors import StorageError
from binlog_storage.log.groups import OfflineGroup

_HELD_BYTES: Final = 1 << 20


class PlacedBlock(NamedTuple):
    """A block, and the numbers of the first and the last of the files in which it lies."""

    block: Block
    first_file: int
    last_file: int


@dataclass(slots=True)
class DomainChain:
    """The blocks of one domain. `before`: its last group in front of them; None if there was none."""

    before: Gtid | None
    blocks: list[PlacedBlock] = field(default_factory=list)

    @property
    def ascends(self) -> bool:
        """Whether numbers of blocks ascend: then there is one of each."""
        return all(a.block.number < b.block.number for a, b in pairwise(self.blocks))

    @property
    def end(self) -> int:
        """The highest sequence number; 0 without any."""
        begin = 0 if self.before is None else self.before.seq_no
        return max((one.block.last.seq_no for one in self.blocks), default=begin)

    def is_in_front(self, gtid: Gtid) -> bool:
        """Whether a group lies in front of what is here: it was purged, or never taken."""
        begin = 0 if self.before is None else self.before.seq_no
        return gtid.seq_no <= begin or (
            bool(self.blocks) and gtid.seq_no < self.blocks[0].block.first.seq_no
        )


class GroupHistory:
    """The groups of a store or archive, in files. `begin`: the binlog state in front of them.

    Raises `StorageError`, `ProtocolError`, `OSError` for what cannot be read.
    """

    def __init__(self, name: str, files: Sequence[GroupFile], begin: BinlogState) -> None:
        self.name: Final = name
        self._files: Final = files
        self.domains: Final = {gtid.domain_id: DomainChain(gtid) for gtid in begin.position()}
        self._read()

    def _read(self) -> None:
        chains = GroupChains()
        begun: dict[int, int] = {}  # the files in which the open blocks have begun
        for number in range(len(self._files)):
            for group, gtid in self._groups(number):
                ended = chains.add(gtid, group.pieces())
                if ended is not None:
                    self._add(ended, begun.pop(gtid.domain_id), number)
                begun.setdefault(gtid.domain_id, number)
        for block in chains.open_blocks:
            self._add(block, begun[block.first.domain_id], len(self._files) - 1)

    def _add(self, block: Block, first_file: int, last_file: int) -> None:
        chain = self.domains.setdefault(block.first.domain_id, DomainChain(None))
        chain.blocks.append(PlacedBlock(block, first_file, last_file))

    def _groups(self, number: int) -> Iterator[tuple[OfflineGroup, Gtid]]:
        for group in self._files[number].groups():
            if group.gtid is not None:
                yield group, group.gtid

    def groups(self, blocks: Sequence[PlacedBlock]) -> Iterator[ReadGroup]:
        """The groups of blocks that follow one another in their domain."""
        wanted = iter(blocks)
        current = next(wanted)
        domain_id = current.block.first.domain_id
        left = current.block.groups
        begun = False
        for number in range(blocks[0].first_file, blocks[-1].last_file + 1):
            for group, gtid in self._groups(number):
                if gtid.domain_id != domain_id:
                    continue
                begun = begun or gtid == current.block.first
                if not begun:
                    continue
                yield ReadGroup.of(group, gtid)
                left -= 1
                if not left:
                    following = next(wanted, None)
                    if following is None:
                        return
                    current, left, begun = following, following.block.groups, False
        raise StorageError(
            f"{self.name} has changed while it was compared: {current.block.last} is not there any more"
        )


class ReadGroup:
    """A group that was read. Of a large one its digest and its content are held, not its bytes."""

    def __init__(self, gtid: Gtid, where: str, held: bytes, content: GroupContent | None) -> None:
        self.gtid: Final = gtid
        self.where: Final = where
        self.held: Final = held
        self._content = content

    @classmethod
    def of(cls, group: OfflineGroup, gtid: Gtid) -> ReadGroup:
        """Raises `ProtocolError`, `StorageError`."""
        pieces, held = group.pieces(), bytearray()
        for piece in pieces:
            held += piece
            if len(held) > _HELD_BYTES:
                break
        else:
            return cls(gtid, group.where, bytes(held), None)
        digest = sha256()

        def passed() -> Iterator[bytes]:
            for piece in itertools.chain((bytes(held),), pieces):
                digest.update(piece)
                yield piece

        content = content_of(passed())
        return cls(gtid, group.where, digest.digest(), content)

    @property
    def content(self) -> GroupContent:
        if self._content is None:
            self._content = content_of([self.held])
        return self._content

    def __str__(self) -> str:
        return f"{describe(self.gtid, self.content)}, in {self.where}"


@dataclass(slots=True)
class DomainResult:
    """The comparison of one domain.

    first, last: of the range that both have; None if there is none.
    groups: of that range, those that are equal, byte by byte; anew: equal in what they say; unlike: written at the
        same time in another form, so that there is no more to compare.
    gtid, difference: the first one, and what differs, in words. None, empty: there is none.
    only_first, only_second: how many groups the one has behind the end of the other.
    """

    domain_id: int
    first: Gtid | None = None
    last: Gtid | None = None
    groups: int = 0
    anew: int = 0
    unlike: int = 0
    gtid: Gtid | None = None
    difference: str = ""
    only_first: int = 0
    only_second: int = 0

    @property
    def compared(self) -> int:
        """How many groups both have."""
        return self.groups + self.anew + self.unlike


def compare_histories(
    a: GroupHistory, b: GroupHistory, *, exact: bool = False
) -> list[DomainResult]:
    """Each domain that one of them has groups of. `exact`: other bytes are a difference. Raises as `GroupHistory`."""
    domains = sorted(a.domains.keys() | b.domains.keys())
    results = (_Comparison(a, b, domain_id, exact=exact).run() for domain_id in domains)
    return [one for one in results if one.compared or one.difference or _has_groups(a, b, one)]


def _has_groups(a: GroupHistory, b: GroupHistory, result: DomainResult) -> bool:
    chains = (history.domains.get(result.domain_id) for history in (a, b))
    return any(chain is not None and chain.blocks for chain in chains)


class _Comparison:
    """Of one domain."""

    def __init__(self, a: GroupHistory, b: GroupHistory, domain_id: int, *, exact: bool) -> None:
        self._a, self._b, self._exact = a, b, exact
        self._ours = a.domains.get(domain_id, DomainChain(None))
        self._theirs = b.domains.get(domain_id, DomainChain(None))
        self._result = DomainResult(domain_id)

    def run(self) -> DomainResult:
        for ours, theirs, is_same in self._stretches():
            if is_same:
                for one in ours:
                    self._same(one.block)
            else:
                self._walk(ours, theirs)
            if self._result.difference:
                break
        return self._result

    def _same(self, block: Block) -> None:
        self._note(block.first)
        self._result.last = block.last
        self._result.groups += block.groups

    def _note(self, gtid: Gtid) -> None:
        self._result.first = self._result.first or gtid
        self._result.last = gtid

    def _stretches(self) -> Iterator[tuple[list[PlacedBlock], list[PlacedBlock], bool]]:
        """Blocks of both, in order: those that are equal, and those that are to be walked."""
        ours, theirs = self._ours, self._theirs
        if not (ours.ascends and theirs.ascends):  # there is no telling which belongs to which
            yield ours.blocks, theirs.blocks, False
            return
        here = {one.block.number: one for one in ours.blocks}
        there = {one.block.number: one for one in theirs.blocks}

        def is_same(number: int) -> bool:
            one, other = here.get(number), there.get(number)
            return one is not None and other is not None and one.block == other.block

        for same, numbers in itertools.groupby(sorted(here.keys() | there.keys()), is_same):
            listed = list(numbers)
            yield (
                [here[n] for n in listed if n in here],
                [there[n] for n in listed if n in there],
                same,
            )

    def _walk(self, ours: list[PlacedBlock], theirs: list[PlacedBlock]) -> None:
        here = self._a.groups(ours) if ours else iter(())
        there = self._b.groups(theirs) if theirs else iter(())
        one, other = next(here, None), next(there, None)
        while one is not None or other is not None:
            if one is not None and other is not None and one.gtid == other.gtid:
                self._pair(one, other)
                if self._result.difference:
                    return
                one, other = next(here, None), next(there, None)
            elif other is None or (one is not None and one.gtid.seq_no < other.gtid.seq_no):
                assert one is not None
                if self._lacks(one, self._theirs, self._a, self._b):
                    return
                one = next(here, None)
            elif one is None or other.gtid.seq_no < one.gtid.seq_no:
                if self._lacks(other, self._ours, self._b, self._a):
                    return
                other = next(there, None)
            else:  # one number, two servers
                self._differ(one.gtid, f"{self._a.name} has {one}; {self._b.name} has {other}")
                return

    def _lacks(
        self, group: ReadGroup, chain: DomainChain, has: GroupHistory, lacks: GroupHistory
    ) -> bool:
        """A group that one side does not have. Whether that is a difference: it may lie in front of that side's
        beginning, or behind its end."""
        if chain.is_in_front(group.gtid):
            return False
        if group.gtid.seq_no > chain.end:
            if has is self._a:
                self._result.only_first += 1
            else:
                self._result.only_second += 1
            return False
        self._differ(group.gtid, f"{lacks.name} lacks it; {has.name} has {group}")
        return True

    def _pair(self, one: ReadGroup, other: ReadGroup) -> None:
        if one.held == other.held:
            self._note(one.gtid)
            self._result.groups += 1
            return
        found = compare(one.content, other.content)
        if self._exact and found.likeness is not Likeness.OTHER:
            self._differ(
                one.gtid, f"other bytes: {self._a.name} has {one}; {self._b.name} has {other}"
            )
            return
        if found.likeness is Likeness.OTHER:
            said = f"{found.difference}. {self._a.name} has {one}; {self._b.name} has {other}"
            self._differ(one.gtid, f"not the same group: {said}")
            return
        self._note(one.gtid)
        if found.likeness is Likeness.SAME:
            self._result.anew += 1
        else:
            self._result.unlike += 1

    def _differ(self, gtid: Gtid, what: str) -> None:
        self._result.gtid, self._result.difference = gtid, what
