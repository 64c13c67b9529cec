"""What statements have told of a table that is kept: what is needed beside its rows to know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from pipeline.errors import NonRowChange
from pipeline.schemas.row_effects import SAME, TOLD
from pipeline.telling import shown


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one table, at a place of the log.

    is_defined: its CREATE TABLE was read, so `computed` and `defaulted` are all there are: as in `RowEffect`.
    doubt: what may be wrong in its rows; empty for nothing.
    """

    is_defined: bool = False
    computed: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    doubt: str = ""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Of what `content` made. Raises TypeError, KeyError."""
        names = {name: tuple(content[name]) for name in ("computed", "defaulted")}
        return cls(**{**content, **names})

    def content(self) -> dict[str, Any]:
        """For a manifest."""
        return asdict(self)

    def behind(self, op: str, said: Mapping[str, Any] | None, gtid: str) -> Facts:
        """A statement; None for one of which nothing is told but what it does to rows."""
        if said is None:
            return self
        doubt = f"{gtid}: {shown(said['sql'])}: {said['doubt']}" if said["doubt"] else ""
        if said["definition"] == SAME:
            defaulted = dict.fromkeys((*self.defaulted, *said["defaulted"]))
            return replace(self, defaulted=tuple(defaulted), doubt=self.doubt or doubt)
        if said["definition"] == TOLD:
            return Facts(True, tuple(said["computed"]), tuple(said["defaulted"]), doubt)
        if op == "x":  # nothing is published behind it, until the table is empty
            return Facts(doubt=self.doubt)
        return Facts(doubt=doubt if op == "t" else self.doubt or doubt)


def refusal(table: str, unknown: str, position: object) -> NonRowChange:
    """The error where a table would be kept behind a statement that makes its rows unknown."""
    return NonRowChange(
        f"the rows of {table} are not known behind {unknown}. Nothing that may be wrong was published: the target is "
        f"at '{position}'. Take a copy of the table at that GTID or later, and begin a new target with it "
        "(--start-gtid, --copy); or keep the table as it was before (--at-gtid). nonRow=skip goes on, with rows "
        "that may be wrong"
    )
