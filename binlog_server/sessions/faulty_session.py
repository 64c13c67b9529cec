"""A client whose conversation suffers faults: made in the place of a `ClientSession` where there are some."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.connection.commands import (
    BinlogDump,
    CommandCode,
    Debug,
    FieldList,
    InitDatabase,
    Ping,
    ProcessInfo,
    ProcessKill,
    Query,
    Refresh,
    RegisterSlave,
    ResetConnection,
    SetOption,
    ShutdownCommand,
    StatisticsCommand,
    StmtBulkExecute,
    StmtExecute,
    StmtFetch,
    StmtPrepare,
    StmtReset,
)
from binlog_protocol.connection.server import NextStatement, ServerEvent, TlsRequested
from binlog_storage.errors import StorageError

from binlog_server.connections.tls import NO_TLS
from binlog_server.faults.faults import COMMANDS, GOES_BACK, FaultOrder, OrderedFault
from binlog_server.sessions.host import Host
from binlog_server.sessions.session import ClientSession

_ABOUT_FAULTS: Final = compiled_later(
    rb"\s*(CREATE(\s+OR\s+REPLACE)?|DROP(\s+ALL)?|SHOW)\s+BINLOG\s+FAULTS?\b", re.IGNORECASE
)
"""Statements that suffer nothing: who has ordered `COM_QUERY`, for ever and for all, can end it."""
CODES: Final = {
    Debug: CommandCode.DEBUG,
    FieldList: CommandCode.FIELD_LIST,
    InitDatabase: CommandCode.INIT_DB,
    Ping: CommandCode.PING,
    ProcessInfo: CommandCode.PROCESS_INFO,
    ProcessKill: CommandCode.PROCESS_KILL,
    Query: CommandCode.QUERY,
    Refresh: CommandCode.REFRESH,
    ResetConnection: CommandCode.RESET_CONNECTION,
    SetOption: CommandCode.SET_OPTION,
    ShutdownCommand: CommandCode.SHUTDOWN,
    StatisticsCommand: CommandCode.STATISTICS,
    StmtBulkExecute: CommandCode.STMT_BULK_EXECUTE,
    StmtExecute: CommandCode.STMT_EXECUTE,
    StmtFetch: CommandCode.STMT_FETCH,
    StmtPrepare: CommandCode.STMT_PREPARE,
    StmtReset: CommandCode.STMT_RESET,
}
"""The codes of commands whose answers may suffer, by their classes."""


def new_session(server: Host) -> ClientSession:
    """For a connection that is accepted now."""
    ordered = server.faults.of_conversation()
    # One that has none yet may get some for itself.
    may_suffer = ordered or server.config.binlog_faults
    return FaultySession(server, ordered) if may_suffer else ClientSession(server)


class FaultySession(ClientSession):
    """See `ClientSession`. Several faults at one place happen in the order in which they were ordered."""

    def __init__(self, server: Host, ordered: Sequence[OrderedFault]) -> None:
        claims = [one for one in ordered if one.fault.do == "claim"]
        lacking = 0
        for one in claims:
            one.met += 1
            lacking |= one.fault.capabilities_lacking
        version = next((one.fault.version for one in claims if one.fault.version), "")
        super().__init__(server, version=version, lacking=lacking)
        self._end_delay: Callable[[], None] = lambda: None

    def data_received(self, data: bytes) -> None:
        self.takes_quickly = not self._all()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_delay()
        super().connection_lost(exc)

    # --- the steps ---

    def _greet(self) -> None:
        self._suffer(self._at("connect"), super()._greet)

    def _answer(self, event: ServerEvent) -> None:
        ordered = self._of_event(event)
        if ordered and isinstance(event, StmtPrepare) and self._conversation is not None:
            # Or an EXECUTE of "the last one" that came with it would run the one before.
            self._conversation.prepared.forget_last()
        self._suffer(ordered, partial(super()._answer, event))

    def _all(self) -> Sequence[OrderedFault]:
        ordered = self._server.faults.of_conversation(self._id)
        return [one for one in ordered if one.fault.do != "claim"]  # a greeting has been sent

    def _of_event(self, event: ServerEvent) -> list[OrderedFault]:
        match event:
            case Query() if _ABOUT_FAULTS.match(event.text):
                return []
            case NextStatement(text, start) if _ABOUT_FAULTS.match(text, start):
                return []
        return [*self._at_command(event), *self._at_place(event)]

    def _at_place(self, event: ServerEvent) -> list[OrderedFault]:
        match event:
            case TlsRequested():
                return self._at("tls")
            case RegisterSlave():
                return self._at("register", event.server_id)
            case BinlogDump():
                return self._at("dump", event.server_id)
            case Query():
                return [*self._at_statement(event.text), *self._out_of_band()]
            case NextStatement(text, start):
                return [*self._at_statement(text[start:]), *self._out_of_band()]
            case StmtExecute() | StmtBulkExecute():
                return self._out_of_band()
        return []

    def _log_in(self, response: bytes) -> None:
        self._suffer(self._at("login"), partial(super()._log_in, response))

    def _at(self, step: str, server_id: int = 0) -> list[OrderedFault]:
        return [
            one
            for one in self._all()
            if one.is_live
            and one.fault.on == step
            and one.fault.is_for(self._user, server_id, self._id)
        ]

    def _at_command(self, event: ServerEvent) -> list[OrderedFault]:
        code = CODES.get(type(event))
        return [
            one
            for one in self._all()
            if code is not None
            and one.fault.command
            and COMMANDS[one.fault.command] == code
            and one.is_live
            and one.fault.is_for(self._user, 0, self._id)
        ]

    def _out_of_band(self) -> list[OrderedFault]:
        return self._at("out_of_band") if self._server.tmp_space.used_by(self._id) else []

    def _at_statement(self, text: bytes) -> list[OrderedFault]:
        return [
            one
            for one in self._all()
            if (begins := one.fault.statement.encode())
            and one.is_live
            and bytes(text).lstrip()[: len(begins)].upper() == begins.upper()
            and one.fault.is_for(self._user, 0, self._id)
        ]

    # --- what happens ---

    def _suffer(self, ordered: Sequence[OrderedFault], go_on: Callable[[], None]) -> None:
        """One after the other; then, unless the conversation has ended, it goes on."""
        while ordered and not ordered[0].is_live:
            # It was dropped, or met by others, while a delay in front of it lasted.
            ordered = ordered[1:]
        if not ordered:
            go_on()
            return
        one, *others = ordered
        fault, channel = one.fault, self._channel
        one.met += 1
        match fault.do:
            case "delay":
                self._delay(fault, partial(self._behind_delay, others, go_on))
            case "error" if self._conversation is None:
                self._refuse(fault.error)
            case "error":
                channel.send_error(fault.error)
            case "break_tls":
                channel.transport.write(NO_TLS)
                channel.close()
            case "die":
                self._die()
            case _:
                channel.close()
                if fault.do in GOES_BACK:
                    self._server.faults.restart(fault)

    def _delay(self, fault: FaultOrder, behind: Callable[[], None]) -> None:
        """Until its time is over, or somebody drops it. What comes meanwhile waits in the socket."""
        self._channel.hold(held=True)
        loop = asyncio.get_running_loop()
        timer: asyncio.Handle = loop.call_later(fault.seconds, behind)

        def dropped() -> None:
            nonlocal timer
            timer.cancel()
            timer = loop.call_soon(behind)

        leave = self._server.faults.when_dropped(fault, dropped)

        def end() -> None:
            timer.cancel()
            leave()

        self._end_delay = end

    def _die(self) -> None:
        """Whatever is logged is on the disk then, or a crash would only ever meet what was in memory."""
        assert self._server.faults.die is not None, "it was refused"
        self._channel.close()
        with contextlib.suppress(StorageError):
            self._server.engine.sync()
        self._server.faults.die()

    def _behind_delay(self, ordered: Sequence[OrderedFault], go_on: Callable[[], None]) -> None:
        self._end_delay()
        if self._channel.is_closing:
            return
        self._channel.hold(held=False)
        self._suffer(ordered, go_on)
        self._go_on()
