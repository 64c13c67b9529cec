"""Which traditional binlog files, and in which order.

A binlog `mariadb-bin` has the files mariadb-bin.000001, mariadb-bin.000002 ...; mariadb-bin.index names those that
there are, one a line, relative to the data directory. Beside them may lie mariadb-bin.state and, from 11.4 on,
mariadb-bin.000001.idx.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.classic.errors import UnreadableBinlog
from binlog_storage.disk.given_files import read_given

_NUMBERED: Final = compiled_later(r"(.+)\.([0-9]{1,10})")
# So that `mariadb-bin.*` can be given.
_INDEX_BYTES_MAX: Final = 64 << 20
_BESIDE: Final = frozenset({".idx", ".index", ".state"})


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Files of one binlog by their numbers; files whose names tell no number, or another binlog's, as they were given.

    What lies beside binlog files is left out.
    """
    found = [path for path in paths if path.suffix not in _BESIDE]
    matches = [_NUMBERED.fullmatch(path.name) for path in found]
    if len({match[1] if match else None for match in matches}) == 1 and all(matches):
        found.sort(key=lambda path: int(path.name.rpartition(".")[2]))
    return list(dict.fromkeys(found))


def of_index(index: Path) -> list[Path]:
    """The files that an index file names, in its order. Raises `UnreadableBinlog` for one that is not there."""
    found = []
    for line in read_given(index, _INDEX_BYTES_MAX).split(b"\n"):
        name = os.fsdecode(line.strip())
        if not name:
            continue
        # In a copy of the files beside the index the paths of the server mean nothing.
        candidates = (index.parent / name, index.parent / Path(name).name)
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            raise UnreadableBinlog(
                f"{index} names {name}, which is not there: copy it, or give the files that there are by their names"
            )
        found.append(path)
    if not found:
        raise UnreadableBinlog(f"{index} names no files")
    return found
