"""Everything that can be wrong in a directory of traditional files, found and told, going on with the next file.

index      names binlog files in their order, which are there
files      head, events and their checksums, whole groups, up to the first damage of each; GTIDs that go backwards
           (a warning); the groups of a file lead to the GTID list of the next one
end        behind what was published as durable; a torn tail of the last file (a warning: a start cuts it off)
indexes    the nodes of a GTID index that lead to its first and its last record (a warning: a search that does not
           believe one reads the file, and has it made again); that of the last file gets its root when it is closed
prepared   the XA transactions that wait beside the binlog
facts, redo, tables     as in an .ibb store
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.classic.binlog import FileHead, read_head
from binlog_storage.classic.checked_file import CheckedFile, opened_in
from binlog_storage.classic.directory import BinlogNames, read_index
from binlog_storage.classic.durable_end import durable_end
from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.errors import DamagedBinlog, EncryptedBinlog, UnreadableBinlog
from binlog_storage.classic.gtid_index import INDEX_SUFFIX, BadIndex, IndexReader
from binlog_storage.classic.summary import reason_of
from binlog_storage.classic.xa_files import XA_PREFIX, prepared_fault
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import DiskError, StorageError
from binlog_storage.log.pending_redo import PendingRedo
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.verify.beside import facts_fault, tables_fault
from binlog_storage.verify.verify import Progress, Severity, VerifyTotals


class FileFinding(NamedTuple):
    """One thing that is wrong, at a byte offset of a file that has no pages."""

    severity: Severity
    file: str
    offset: int
    reason: str

    @property
    def page(self) -> None:
        return None

    def __str__(self) -> str:
        mark = "" if self.severity is Severity.ERROR else "warning: "
        return f"{self.file} offset {self.offset}: {mark}{self.reason}"


class ClassicVerifier:
    """One run over one directory.

    Args:
        base: the name of its binlog.
        keys: for files that are encrypted.
    """

    def __init__(
        self,
        disk: ReadableDisk,
        base: str,
        report: Callable[[FileFinding], None],
        progress: Progress | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._disk = disk
        self._report_to = report
        self._progress_to = progress or (lambda done, total: None)
        self._keys = keys
        self._counts = dict.fromkeys(Severity, 0)
        self._seen = BinlogState()
        self._groups = 0
        names = BinlogNames(base)
        self._files = [names.name(number) for number in read_index(disk, base)]
        self._index_name = f"{base}.index"

    def run(self) -> VerifyTotals:
        """Raises `DiskError`, `EncryptedBinlog`, `NoBinlogKey`; what is wrong with the data is reported."""
        self._beside()
        there = set(self._disk.names())
        for name in self._files:
            if name not in there:
                self._error(name, 0, f"the file is missing, but {self._index_name} names it")
        files = [name for name in self._files if name in there]
        heads = [head for name in files if (head := self._head(name)) is not None]
        end = durable_end(self._disk, heads)
        durable = {} if end is None else {heads[end[0]].path.name: end[1]}
        sizes = [self._disk.size(name) for name in files]
        done = 0
        for at, name in enumerate(files):
            following = files[at + 1] if at + 1 < len(files) else None
            self._progress_to(done, sum(sizes))
            self._file(name, following, durable.get(name, 0))
            if following is not None and name + INDEX_SUFFIX in there:
                self._gtid_index(name + INDEX_SUFFIX)
            done += sizes[at]
        self._progress_to(done, sum(sizes))
        errors, warnings = self._counts[Severity.ERROR], self._counts[Severity.WARNING]
        return VerifyTotals(len(self._files), self._groups, errors, warnings)

    def _beside(self) -> None:
        disk, redo = self._disk, PendingRedo.of(self._disk)
        for fault in dict.fromkeys(
            (redo.damage, facts_fault(disk, redo), tables_fault(disk, redo))
        ):
            if fault:
                self._error(REDO_NAME, 0, fault)
        for name in sorted(disk.names()):
            if name.startswith(XA_PREFIX) and (fault := prepared_fault(disk, name, self._keys)):
                self._error(name, 0, fault)

    def _head(self, name: str) -> FileHead | None:
        """None for one that is damaged: the look at its file tells."""
        with contextlib.suppress(DamagedBinlog, UnreadableBinlog):
            return read_head(Path(name), opened_in(self._disk, name, self._keys))
        return None

    def _file(self, name: str, following: str | None, durable: int) -> None:
        checked = CheckedFile(
            self._disk, name, self._keys, durable_end=durable, following=following, gap=True
        )
        try:
            for group in checked.groups():
                if group is not None and group.gtid is not None:
                    self._groups += 1
                    self._logged(group.gtid, name, group.offset)
        except EncryptedBinlog:
            raise
        except (DamagedBinlog, UnreadableBinlog) as error:
            offset = error.offset if isinstance(error, DamagedBinlog) else 0
            self._error(name, offset, f"{reason_of(error, name)}; nothing behind it was checked")
            return
        if checked.left_out and following is None:
            torn = "as a crash leaves it; the server cuts it off when it opens the store"
            left = checked.left_out.removeprefix(f"{name} ends ").removesuffix(" were left out")
            self._warning(name, 0, f"the file ends {left} belong to no whole group, {torn}")

    def _logged(self, gtid: Gtid, name: str, offset: int) -> None:
        before = self._seen.get(gtid.domain_id, gtid.server_id)
        if before is not None and gtid.seq_no <= before:
            reason = (
                f"GTID {gtid} comes after {gtid.domain_id}-{gtid.server_id}-{before}: not ascending"
            )
            self._warning(name, offset, reason)
        self._seen.update(gtid)

    def _gtid_index(self, name: str) -> None:
        try:
            with contextlib.closing(self._disk.open(name)) as file:
                index = IndexReader(file)
                index.first()
                index.find(lambda offset, state: True)
        except BadIndex as error:
            self._warning(name, 0, f"{error}: searches read the binlog file instead")
        except DiskError:
            raise
        except StorageError as error:
            self._error(name, 0, str(error))

    def _error(self, file: str, offset: int, reason: str) -> None:
        self._tell(Severity.ERROR, file, offset, reason)

    def _warning(self, file: str, offset: int, reason: str) -> None:
        self._tell(Severity.WARNING, file, offset, reason)

    def _tell(self, severity: Severity, file: str, offset: int, reason: str) -> None:
        self._counts[severity] += 1
        self._report_to(FileFinding(severity, file, offset, reason))
