"""Two histories, compared by the hash chains of their groups: whether, and where, they differ.

Each domain is compared by itself, on the range that both have: order between domains, files and formats do not count.

1. The blocks of both (`binlog_protocol.groups.group_chain`), by one reading of each; of files that are closed they may
   be remembered (`remembered_chains`).
2. Blocks that are equal are equal group by group, and a block that lies where the other history has nothing needs no
   second look. The others are read again, those of all domains by one reading of each history, and laid side by side up
   to the first difference of each domain. Groups with other bytes under one GTID are compared by what they say
   (`group_comparison`): a replica that logs its master's groups anew has the same history in bytes of its own.

What was read first bounds what is compared: groups that come while this runs are left for another time.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_chain import Block, block_number
from binlog_protocol.groups.group_comparison import Likeness, compare, describe
from binlog_protocol.groups.group_content import GroupContent, content_of
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.archive.group_files import GroupFile
from binlog_storage.archive.remembered_chains import PairCounts, RememberedChains
from binlog_storage.errors import StorageError
from binlog_storage.log.groups import OfflineGroup

_HELD_BYTES: Final = 1 << 20
_WAITING_BYTES: Final = 64 << 20
"""Of groups of other domains, where the two histories have their domains in another order."""


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
    """The groups of a store, a server or an archive, in files. `begin`: the binlog state in front of them.

    Raises `StorageError`, `ProtocolError`, `OSError` for what cannot be read.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[GroupFile],
        begin: BinlogState,
        remembered: RememberedChains | None = None,
    ) -> None:
        self.name: Final = name
        self._files: Final = files
        self.domains: Final = {gtid.domain_id: DomainChain(gtid) for gtid in begin.position()}
        self._read(RememberedChains() if remembered is None else remembered)

    def _read(self, remembered: RememberedChains) -> None:
        opened: list[Block] = []
        begun: dict[int, int] = {}  # the files in which the open blocks have begun
        for number, file in enumerate(self._files):
            found = remembered.of(file, opened)
            for block in found.ended:
                self._add(block, begun.pop(block.first.domain_id, number), number)
            opened = found.left
            for block in opened:
                begun.setdefault(block.first.domain_id, number)
        for block in opened:
            self._add(block, begun[block.first.domain_id], len(self._files) - 1)

    def _add(self, block: Block, first_file: int, last_file: int) -> None:
        chain = self.domains.setdefault(block.first.domain_id, DomainChain(None))
        chain.blocks.append(PlacedBlock(block, first_file, last_file))

    def reading(self, wanted: Mapping[int, Sequence[PlacedBlock]]) -> HistoryReading:
        """The groups of these blocks, of each domain in order."""
        return HistoryReading(self, self._files, wanted)

    def position_before(self, wanted: Mapping[int, Sequence[PlacedBlock]]) -> SlavePosition:
        """Behind which the groups of these blocks come, and none of other domains."""
        found = []
        for domain_id, chain in self.domains.items():
            last = chain.before
            first = wanted[domain_id][0] if wanted.get(domain_id) else None
            for one in chain.blocks:
                if one is first:
                    break
                last = one.block.last
            if last is not None:
                found.append(last)
        return SlavePosition(found)


class HistoryReading:
    """The groups of some blocks of a history, those of all domains in the order of its files."""

    def __init__(
        self,
        history: GroupHistory,
        files: Sequence[GroupFile],
        wanted: Mapping[int, Sequence[PlacedBlock]],
    ) -> None:
        self._history: Final = history
        self._files: Final = files
        self._wanted: Final = wanted
        self._left = {
            domain_id: _BlocksLeft(blocks) for domain_id, blocks in wanted.items() if blocks
        }

    def drop(self, domain_id: int) -> None:
        """No more of this domain is wanted."""
        self._left.pop(domain_id, None)

    def groups(self) -> Iterator[ReadGroup]:
        """Raises as the history; `StorageError` also if a group is not there any more."""
        for groups in self._sources():
            for group in groups:
                gtid = group.gtid
                left = None if gtid is None else self._left.get(gtid.domain_id)
                if gtid is None or left is None or not left.takes(gtid):
                    continue
                found = ReadGroup.of(group, gtid)
                if left.is_over:
                    self.drop(gtid.domain_id)
                yield found
                if not self._left:
                    return
        for left in self._left.values():
            raise StorageError(
                f"{self._history.name} has changed while it was compared: {left.last} is not there any more"
            )

    def _sources(self) -> Iterator[Iterator[OfflineGroup]]:
        for number, file in enumerate(self._files):
            if not any(left.may_be_in(number) for left in self._left.values()):
                continue
            if file.behind is None:
                yield file.groups()
            else:
                yield file.behind(self._history.position_before(self._wanted))


class _BlocksLeft:
    """Blocks of one domain of which groups are to come."""

    def __init__(self, blocks: Sequence[PlacedBlock]) -> None:
        self._blocks: Final = blocks
        self._at = self._taken = 0

    @property
    def is_over(self) -> bool:
        return self._at == len(self._blocks)

    @property
    def last(self) -> Gtid:
        """The last group of the block that is being read."""
        return self._blocks[self._at].block.last

    def may_be_in(self, file: int) -> bool:
        return any(one.first_file <= file <= one.last_file for one in self._blocks[self._at :])

    def takes(self, gtid: Gtid) -> bool:
        """Whether the next group of the domain is one of theirs."""
        block = self._blocks[self._at].block
        if not self._taken and gtid != block.first:
            return False
        self._taken += 1
        if self._taken == block.groups:
            self._at, self._taken = self._at + 1, 0
        return True


class _ByDomain:
    """A reading whose groups are asked for by domain. Those of others that come first wait in memory; of a domain of
    which too much waits, the rest is read by itself."""

    def __init__(self, history: GroupHistory, wanted: Mapping[int, Sequence[PlacedBlock]]) -> None:
        self._history: Final = history
        self._wanted: Final = wanted
        self._reading: Final = history.reading(wanted)
        self._groups: Final = self._reading.groups()
        self._waiting: Final = {domain_id: deque[ReadGroup]() for domain_id in wanted}
        self._taken = dict.fromkeys(wanted, 0)
        self._apart: Final[dict[int, Iterator[ReadGroup]]] = {}
        self._bytes = 0

    def next(self, domain_id: int) -> ReadGroup | None:
        """The next group of a domain; None at its end."""
        apart = self._apart.get(domain_id)
        if apart is not None:
            return next(apart, None)
        waiting = self._waiting.get(domain_id)
        if waiting is None:
            return None
        while not waiting:
            group = next(self._groups, None)
            if group is None:
                return None
            other = group.gtid.domain_id
            if other in self._waiting:
                self._waiting[other].append(group)
                self._bytes += len(group.held)
                if self._bytes > _WAITING_BYTES and other != domain_id:
                    self._set_apart(other)
        self._taken[domain_id] += 1
        group = waiting.popleft()
        self._bytes -= len(group.held)
        return group

    def _set_apart(self, domain_id: int) -> None:
        self.drop(domain_id)
        alone = self._history.reading({domain_id: self._wanted[domain_id]})
        self._apart[domain_id] = itertools.islice(alone.groups(), self._taken[domain_id], None)

    def drop(self, domain_id: int) -> None:
        """No more of this domain is wanted."""
        self._reading.drop(domain_id)
        self._apart.pop(domain_id, None)
        self._bytes -= sum(len(group.held) for group in self._waiting.pop(domain_id, ()))


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
    a: GroupHistory,
    b: GroupHistory,
    *,
    exact: bool = False,
    remembered: RememberedChains | None = None,
) -> list[DomainResult]:
    """Each domain that one of them has groups of. Raises as `GroupHistory`.

    Args:
        exact: other bytes are a difference.
        remembered: knows pairs of blocks that say the same, and learns more.
    """
    remembered = RememberedChains() if remembered is None else remembered
    domains = sorted(a.domains.keys() | b.domains.keys())
    comparisons = {one: _Comparison(a, b, one, remembered, exact=exact) for one in domains}
    here = a.reading({one: found.ours for one, found in comparisons.items()})
    there = _ByDomain(b, {one: found.theirs for one, found in comparisons.items()})
    walks = {one: found.walk(partial(there.next, one)) for one, found in comparisons.items()}

    def go_on(domain_id: int, group: ReadGroup | None) -> None:
        try:
            walks[domain_id].send(group)
        except StopIteration:
            del walks[domain_id]
            here.drop(domain_id)
            there.drop(domain_id)

    for walk in walks.values():
        next(walk)
    for group in here.groups():
        if group.gtid.domain_id in walks:
            go_on(group.gtid.domain_id, group)
    for domain_id in list(walks):
        go_on(domain_id, None)
    results = (found.result() for found in comparisons.values())
    return [one for one in results if one.compared or one.difference or _has_groups(a, b, one)]


def _has_groups(a: GroupHistory, b: GroupHistory, result: DomainResult) -> bool:
    chains = (history.domains.get(result.domain_id) for history in (a, b))
    return any(chain is not None and chain.blocks for chain in chains)


class _Comparison:
    """Of one domain. `ours`, `theirs`: the blocks of both that are to be laid side by side."""

    def __init__(
        self,
        a: GroupHistory,
        b: GroupHistory,
        domain_id: int,
        remembered: RememberedChains,
        *,
        exact: bool,
    ) -> None:
        self._a, self._b, self._exact = a, b, exact
        self._remembered = remembered
        self._ours = a.domains.get(domain_id, DomainChain(None))
        self._theirs = b.domains.get(domain_id, DomainChain(None))
        self._result = DomainResult(domain_id)
        self._same: list[tuple[Block, PairCounts]] = []
        self._walked: dict[int, Counter[Likeness | None]] = {}
        """What was found of blocks that were walked; None: groups with the same bytes."""
        self.ours: list[PlacedBlock] = []
        self.theirs: list[PlacedBlock] = []
        self._sort()

    def _sort(self) -> None:
        """Into those that are the same, those to be walked, and those of which the other history can have nothing."""
        ours, theirs = self._ours, self._theirs
        if not (ours.ascends and theirs.ascends):  # there is no telling which belongs to which
            self.ours, self.theirs = ours.blocks, theirs.blocks
            return
        here = {one.block.number: one for one in ours.blocks}
        there = {one.block.number: one for one in theirs.blocks}
        result = self._result
        for number in sorted(here.keys() | there.keys()):
            one, other = here.get(number), there.get(number)
            if one is not None and other is not None:
                counts = self._known(one.block, other.block)
                if counts is not None:
                    self._same.append((one.block, counts))
                    continue
            if one is not None and not theirs.is_in_front(one.block.last):
                if one.block.first.seq_no > theirs.end:
                    result.only_first += one.block.groups
                else:
                    self.ours.append(one)
            if other is not None and not ours.is_in_front(other.block.last):
                if other.block.first.seq_no > ours.end:
                    result.only_second += other.block.groups
                else:
                    self.theirs.append(other)

    def _known(self, block: Block, other: Block) -> PairCounts | None:
        """What is known of two blocks without a look at their groups; None: nothing."""
        if block == other:
            return PairCounts(block.groups, 0, 0)
        counts = None if self._exact else self._remembered.pair(block, other)
        if counts is not None:
            self._remembered.put_pair(block, other, counts)
        return counts

    def result(self) -> DomainResult:
        """Behind the walk."""
        result = self._result
        self._remember()
        for block, counts in self._same:
            if result.gtid is not None and block.first.seq_no > result.gtid.seq_no:
                break
            if result.first is None or block.first.seq_no < result.first.seq_no:
                result.first = block.first
            if result.last is None or block.last.seq_no > result.last.seq_no:
                result.last = block.last
            result.groups += counts.groups
            result.anew += counts.anew
            result.unlike += counts.unlike
        return result

    def _remember(self) -> None:
        """The blocks of which both have the same GTIDs, and no difference was met."""
        theirs = {one.block.number: one.block for one in self.theirs}
        for block in (one.block for one in self.ours):
            found, other = self._walked.get(block.number), theirs.get(block.number)
            if found is None or other is None or block[:3] != other[:3]:
                continue
            counts = PairCounts(found[None], found[Likeness.SAME], found[Likeness.UNLIKE_FORM])
            if sum(counts) == block.groups:
                self._remembered.put_pair(block, other, counts)

    def walk(
        self, there: Callable[[], ReadGroup | None]
    ) -> Generator[None, ReadGroup | None, None]:
        """Is sent the groups of `ours`, and None behind them; ends at the first difference, or behind all.

        there: gives the next one of `theirs`.
        """
        one, other = (yield), there()
        while one is not None or other is not None:
            if one is not None and other is not None and one.gtid == other.gtid:
                self._pair(one, other)
                if self._result.difference:
                    return
                one, other = (yield), there()
            elif other is None or (one is not None and one.gtid.seq_no < other.gtid.seq_no):
                assert one is not None
                if self._lacks(one, self._theirs, self._a, self._b):
                    return
                one = yield
            elif one is None or other.gtid.seq_no < one.gtid.seq_no:
                if self._lacks(other, self._ours, self._b, self._a):
                    return
                other = there()
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
            self._equal(one.gtid, None)
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
        self._equal(one.gtid, found.likeness)

    def _equal(self, gtid: Gtid, likeness: Likeness | None) -> None:
        """`likeness`: None for the same bytes."""
        result = self._result
        result.first = result.first or gtid
        result.last = gtid
        if likeness is None:
            result.groups += 1
        elif likeness is Likeness.SAME:
            result.anew += 1
        else:
            result.unlike += 1
        self._walked.setdefault(block_number(gtid), Counter())[likeness] += 1

    def _differ(self, gtid: Gtid, what: str) -> None:
        self._result.gtid, self._result.difference = gtid, what
