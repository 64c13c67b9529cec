"""All targets, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets.archives import Archives
from tests.fuzz.targets.classic_stores import ClassicStores, GtidIndexes
from tests.fuzz.targets.masters import Masters
from tests.fuzz.targets.rows import RowFiles
from tests.fuzz.targets.sessions import Commands, Handshake, Sql
from tests.fuzz.targets.stores import Redo, Stores
from tests.fuzz.targets.tables import SqlOfTables
from tests.fuzz.targets.upstream import Upstream
from tests.fuzz.targets.web import Web

_ALL: Final[tuple[type[Target], ...]] = (
    Handshake,
    Commands,
    Sql,
    SqlOfTables,
    Upstream,
    Masters,
    Stores,
    Redo,
    RowFiles,
    ClassicStores,
    GtidIndexes,
    Archives,
    Web,
)

TARGETS: Final[Mapping[str, Callable[[], Target]]] = {make.name: make for make in _ALL}
