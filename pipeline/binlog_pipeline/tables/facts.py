"""Facts that statements have told of a kept table: needed beside its rows to know them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final, Self

from binlog_protocol.dataclass import dataclass

from binlog_pipeline.errors import BadOption, NonRowChange
from binlog_pipeline.schemas.default_charsets import TableCharset
from binlog_pipeline.schemas.row_effects import SAME, TOLD
from binlog_pipeline.telling import doubted

_COMPUTING: Final = re.compile(r"\b(AS|GENERATED)\b", re.IGNORECASE)
_NUMBERING: Final = re.compile(r"\b(AUTO_INCREMENT|SERIAL)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one table, at a place of the log.

    is_defined: its CREATE TABLE was read, so `computed`, `defaulted`, `sources` are all there are, as in `RowEffect`.
    doubt: what may be wrong in its rows; empty for nothing.
    was_emptied: since the beginning, so no row is from before it.
    prepared: XA transactions that are not at their end, by XID, and what to say of one that has rows of the table;
        empty for one that has none.
    is_whole: all rows of the table are in what is kept, but for what is prepared.
    is_plain: as far as its CREATE TABLE is read, and all since, no column is computed of others.
    is_unnumbered: as far as that, no column is an AUTO_INCREMENT.
    charset: what columns get that name none; empty if it is not known. taken: columns that have it.
    described: the table as a table map would have it, if a server was asked (`schemas/asked.py`): the log may have no
        row of it. Empty if none was.
    """

    is_defined: bool = False
    computed: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    doubt: str = ""
    was_emptied: bool = False
    prepared: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False
    is_plain: bool = False
    is_unnumbered: bool = False
    described: str = ""
    charset: str = ""
    taken: tuple[str, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The facts that `content` made. Raises TypeError, KeyError."""
        names = {name: tuple(content[name]) for name in ("computed", "defaulted")}
        names["taken"] = tuple(content.get("taken", ()))
        sources = tuple(map(tuple, content.get("sources", ())))
        return cls(**{**content, **names, "sources": sources})

    def content(self) -> dict[str, Any]:
        """The facts as a JSON object, for a manifest."""
        return asdict(self)

    def behind(self, op: str, said: Mapping[str, Any] | None, gtid: str) -> Facts:
        """A statement; None for one of which nothing is told but what it does to rows."""
        facts = self._behind(op, said, gtid)
        if said is not None and said["charset"] is not None:
            facts = replace(facts, charset=said["charset"])
        if said is not None and said["taken"] is not None:
            facts = replace(facts, taken=tuple(said["taken"]))
        return replace(facts, was_emptied=self.was_emptied or op == "t")

    @property
    def given(self) -> TableCharset:
        """The character set of columns that name none."""
        return TableCharset(self.charset, self.taken)

    def rewritten(
        self,
        names: Mapping[str, str],
        defaulted: Sequence[str],
        doubt: str,
        given: TableCharset,
    ) -> Facts:
        """Behind an ALTER TABLE that the rows were rewritten by.

        Args:
            names: what is left of the columns, by their old names.
            defaulted: columns that have got a default.
            doubt: what may be wrong behind it for another reason; empty for nothing.
            given: the character set behind it of columns that name none.
        """
        by_name = {was.casefold(): now for was, now in names.items()}

        def still(some: Sequence[str]) -> tuple[str, ...]:
            return tuple(by_name[one.casefold()] for one in some if one.casefold() in by_name)

        every = dict.fromkeys((*still(self.defaulted), *defaulted))
        return replace(
            self,
            computed=still(self.computed),
            sources=tuple(still(one) for one in self.sources if still(one[:1])),
            defaulted=tuple(every),
            doubt=self.doubt or doubt,
            charset=given.charset,
            taken=given.taken,
        )

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the table are kept, and none that may go."""
        return self.is_whole and not self.waits_for

    @property
    def whole_doubt(self) -> str:
        """The reason for which rows may be wrong or missing; empty for none."""
        return self.doubt or self.waits_for

    @property
    def waits_for(self) -> str:
        """XA transactions whose rows are in the table and may be taken back; empty for none."""
        return "; ".join(text for text in self.prepared.values() if text)

    def _behind(self, op: str, said: Mapping[str, Any] | None, gtid: str) -> Facts:
        if said is None:
            return self
        if said["prepares"]:
            text = doubted(gtid, said["sql"], said["doubt"]) if said["doubt"] else ""
            return replace(self, prepared={**self.prepared, said["prepares"]: text})
        if said["ends"]:
            return self._behind_end(said, gtid)
        doubt = doubted(gtid, said["sql"], said["doubt"]) if said["doubt"] else ""
        if said["definition"] == SAME:
            defaulted = dict.fromkeys((*self.defaulted, *said["defaulted"]))
            is_plain = self.is_plain and not _COMPUTING.search(said["sql"])
            is_unnumbered = self.is_unnumbered and not _NUMBERING.search(said["sql"])
            facts = replace(self, defaulted=tuple(defaulted), is_plain=is_plain)
            facts = replace(facts, is_unnumbered=is_unnumbered)
            return replace(facts, doubt=self.doubt or doubt)
        if said["definition"] == TOLD:
            names = (tuple(said["computed"]), tuple(said["defaulted"]))
            is_plain = not _COMPUTING.search(said["sql"])
            facts = Facts(True, *names, doubt, prepared=self.prepared, is_plain=is_plain)
            facts = replace(facts, is_unnumbered=not _NUMBERING.search(said["sql"]))
            return replace(facts, sources=tuple(map(tuple, said["sources"] or ())))
        if op == "x":  # nothing is published behind it, until the table is empty
            why = "columns computed of an AUTO_INCREMENT are logged before the row gets its number"
            is_meant = said["computed"] and self._may_compute_of_numbers(said["sql"])
            doubt = doubted(gtid, said["sql"], why) if is_meant else ""
            return Facts(doubt=self.doubt or doubt, prepared=self.prepared)
        return Facts(doubt=doubt if op == "t" else self.doubt or doubt, prepared=self.prepared)

    def _may_compute_of_numbers(self, sql: str) -> bool:
        """Whether a column may be computed of an AUTO_INCREMENT behind an ALTER TABLE that is not followed."""
        computes = not self.is_plain or _COMPUTING.search(sql) is not None
        return computes and (not self.is_unnumbered or _NUMBERING.search(sql) is not None)

    def _behind_end(self, said: Mapping[str, Any], gtid: str) -> Facts:
        """The facts behind the end of an XA transaction."""
        had = self.prepared.get(said["ends"])
        why = said["doubt"] if had else ""  # it is rolled back
        if had is None and not said["doubt"] and not self.was_emptied:
            why = (
                "it was prepared before the target begins, so rows of it may be missing: begin where XA RECOVER lists "
                "nothing"
            )
        doubt = doubted(gtid, said["sql"], why) if why else ""
        rest = {xid: text for xid, text in self.prepared.items() if xid != said["ends"]}
        return replace(self, doubt=self.doubt or doubt, prepared=rest)


class TableOfFacts:
    """A table that is kept, as far as its facts tell of it."""

    _facts: Facts

    @property
    def facts(self) -> Facts:
        """What statements have told of it."""
        return self._facts

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the table are in what is kept, and none that may go."""
        return self._facts.is_complete

    @property
    def doubt(self) -> str:
        """The reason for which rows may be wrong or missing; empty for none."""
        return self._facts.whole_doubt


def kept_by_others(
    where: object, table: str, keys: Iterable[str], wanted: str, by: Iterable[str]
) -> BadOption:
    """The error for a target that holds a table, or the rows of it by keys, that is not the one wanted."""
    return BadOption(
        f"{where} holds {table} by {', '.join(keys)}, not {wanted} by {', '.join(by)}: name another target or those "
        "keys (--keys); or, where the primary key has changed, make it anew (binlog-spark load --again)"
    )


def refusal(table: str, unknown: str, position: object, facts: Facts) -> NonRowChange:
    """The error where a table would be kept behind a statement that makes its rows unknown.

    Args:
        position, facts: of what was published.
    """
    published = (
        f"The target stays at '{position}', which may be wrong already: {facts.whole_doubt}"
        if facts.whole_doubt
        else f"Nothing that may be wrong was published: the target is at '{position}'"
    )
    return NonRowChange(
        f"the rows of {table} are not known behind {unknown}. {published}. Read the table anew from its server "
        "(binlog-spark load --again); or begin a new target with a copy of it at that GTID or later (--start-gtid, "
        "--copy); or keep it as it was before (--at-gtid). nonRow=skip goes on, with rows that may be wrong"
    )
