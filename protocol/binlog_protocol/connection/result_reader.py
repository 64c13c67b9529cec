"""Collects a result set at the client's end, packet by packet. Bounded."""

from __future__ import annotations

from binlog_protocol.errors import ProtocolError
from binlog_protocol.limits import RESULT_BYTES_MAX, RESULT_PACKET_BYTES
from binlog_protocol.wire.results import Column, parse_eof, parse_row


class ResultReader:
    """First the columns with an EOF behind them, then the rows."""

    def __init__(self, column_count: int) -> None:
        self.columns: list[Column] = []
        self.rows: list[list[str | None]] = []
        self._column_count = column_count
        self._bytes = 0

    def take_column(self, payload: bytes) -> bool:
        """False for the EOF behind the last one. Raises `ProtocolError`."""
        if len(self.columns) == self._column_count:
            parse_eof(payload)
            return False
        self._count(payload)
        self.columns.append(Column.parse(payload))
        return True

    def take_row(self, payload: bytes) -> None:
        """Raises `ProtocolError`."""
        self._count(payload)
        self.rows.append(parse_row(payload, self._column_count))

    def _count(self, payload: bytes) -> None:
        self._bytes += len(payload) + RESULT_PACKET_BYTES
        if self._bytes > RESULT_BYTES_MAX:
            raise ProtocolError(f"result set of more than {RESULT_BYTES_MAX} bytes")
