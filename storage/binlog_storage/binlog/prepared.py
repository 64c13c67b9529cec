"""Prepared XA transactions: they are in the binlog, and wait for XA COMMIT or XA ROLLBACK."""

from __future__ import annotations

from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.errors import XaStateError
from binlog_storage.ibb import xa
from binlog_storage.ibb.chunk import Record, RecordType
from binlog_storage.ibb.records import parsed
from binlog_storage.ibb.xa import XaPrepare, Xid


class PreparedTransactions:
    """The prepared transactions of a store, by XID. The store's append lock is held around every call."""

    def __init__(self, references: References, *, keep_committed: bool = False) -> None:
        self._references = references
        self._by_xid: dict[Xid, tuple[XaPrepare, Pin]] = {}
        self._keep_committed = keep_committed
        self.committed: dict[Xid, Pin] = {}
        """With `keep_committed`, names that recovery has found committed: other engines may not know it yet."""

    def __len__(self) -> int:
        return len(self._by_xid)

    def xids(self) -> list[Xid]:
        """The names of the transactions, in the order of preparation."""
        return list(self._by_xid)

    def require_free(self, xid: Xid) -> None:
        """Raises `XaStateError` if the name is taken."""
        if xid in self._by_xid:
            raise XaStateError(f"the XID {xid} is prepared already")

    def add(self, prepare: XaPrepare, active_file: int) -> None:
        """Add a prepared transaction. It holds the file of its first data, or the active file if it has none."""
        file_no = active_file if prepare.oob is None else prepare.oob.first.file_no
        self.discard(prepare.xid)
        hold = self._references.hold(Reason.PREPARED_XA, prepare.xid.sql(), file_no)
        self._by_xid[prepare.xid] = prepare, hold

    def get(self, xid: Xid) -> XaPrepare:
        """The record of a prepared transaction. Raises `XaStateError` if there is none of that name."""
        try:
            return self._by_xid[xid][0]
        except KeyError:
            raise XaStateError(f"the XID {xid} is not prepared") from None

    def discard(self, xid: Xid) -> None:
        """Remove a transaction that was committed or rolled back, and release its file."""
        found = self._by_xid.pop(xid, None)
        if found is not None:
            found[1].release()

    def replay(self, record: Record) -> None:
        """Take a record that recovery reads; a later one for the same XID replaces the earlier.

        Raises `CorruptBinlog`.
        """
        if record.type == RecordType.XA_PREPARE:
            prepare = parsed(xa.decode_prepare, record.data, record.start)
            self.add(prepare, record.start.file_no)
        elif record.type == RecordType.XA_COMPLETE:
            complete = parsed(xa.decode_complete, record.data, record.start)
            self.discard(complete.xid)
            if (
                self._keep_committed
                and not complete.rolled_back
                and complete.xid not in self.committed
            ):
                self.committed[complete.xid] = self._references.hold(
                    Reason.PREPARED_XA, complete.xid.sql(), record.start.file_no
                )

    def forget_committed(self) -> None:
        """All engines know what recovery has found."""
        for hold in self.committed.values():
            hold.release()
        self.committed = {}
