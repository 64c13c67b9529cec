"""TLS of the server: its context, and the layer between a socket's transport and a session.

The layer is our own because a client may send its request and its ClientHello in one segment: `loop.start_tls` never
sees bytes that were read before it; here they are handed over. A connection without TLS uses none of this.

    socket transport  <-->  TlsLayer (a protocol to it)  <-->  session (which sees a transport)

The limits of the socket's transport hold: written bytes are encrypted at once and wait in its write buffer; received
bytes are decrypted only as far as the session reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from binlog_storage.disk.given_files import (
    PEM_BYTES_MAX,
    load_authorities,
    load_chain,
    read_given_text,
    validity,
)

from binlog_server.loop.turn import Turn
from binlog_server.settings.config import TLS_VERSIONS

log = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_WRITE_BYTES = (
    1 << 20
)  # encrypted before any of it is handed to the socket: bounds what lies twice in memory
NO_TLS = bytes(64)
"""Bytes that no TLS begins with, nor goes on with."""
_LAYER = "binlog_server_tls_layer"


class _Certified(NamedTuple):
    """A context that can serve, and what is to know of its certificate: see `TlsServer`."""

    context: ssl.SSLContext
    fingerprint: bytes
    begins: float
    expires: float


class TlsServer:
    """The TLS context of a server. A self-signed certificate is made when somebody asks for it."""

    def __init__(self, certify: Callable[[], _Certified], *, self_signed: bool) -> None:
        self._certify = certify
        self._certified: _Certified | None = None
        self._making = threading.Lock()  # one certificate, whatever thread asks first
        self.self_signed = self_signed

    @classmethod
    def make(
        cls, cert: str = "", key: str = "", ca: str = "", versions: Sequence[str] = ()
    ) -> TlsServer:
        """Make a context from PEM files; without `cert`, with a new self-signed certificate.

        Raises `OSError` (`ssl.SSLError` is one) or `ValueError` for files that are missing or bad.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        allowed = [TLS_VERSIONS[name] for name in versions] or list(TLS_VERSIONS.values())
        context.minimum_version, context.maximum_version = min(allowed), max(allowed)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0  # clients do not resume sessions: a replica stays for weeks
        if ca:
            load_authorities(context, ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # an account may REQUIRE X509
        if not cert:
            return cls(lambda: _self_signed(context), self_signed=True)
        load_chain(context, cert, key)
        pem = read_given_text(cert, PEM_BYTES_MAX)
        end = pem.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
        # The first certificate is the server's; the others are its issuers'.
        certified = _certified(context, pem[pem.index(ssl.PEM_HEADER) : end])
        return cls(lambda: certified, self_signed=False)

    def _found(self) -> _Certified:
        with self._making:
            if self._certified is None:
                self._certified = self._certify()
            return self._certified

    def prepare(self) -> None:
        """Make it now, in a thread, so that no client waits for it."""
        self._found()

    @property
    def context(self) -> ssl.SSLContext:
        return self._found().context

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 of the certificate in DER."""
        return self._found().fingerprint

    @property
    def begins(self) -> float:
        """When the certificate becomes valid, in seconds since 1970."""
        return self._found().begins

    @property
    def expires(self) -> float:
        """When it ends, in seconds since 1970."""
        return self._found().expires

    def doubt(self) -> str:
        """Why clients that verify the certificate refuse it today; empty if its dates are no reason."""
        if self.self_signed or self.begins <= time.time() <= self.expires:
            return ""
        ended = self.expires < time.time()
        at = datetime.fromtimestamp(self.expires if ended else self.begins, UTC)
        return (
            f"the certificate {'has expired' if ended else 'is not valid yet'}: {at:%Y-%m-%d %H:%M:%S} UTC. Clients "
            "that verify it refuse it; give another one, then FLUSH SSL or SIGHUP"
        )


def _self_signed(context: ssl.SSLContext) -> _Certified:
    # Loaded here: it takes longer than to make one, and many servers are never asked.
    from binlog_server.connections.certificate import use_self_signed

    return _certified(context, use_self_signed(context).decode("ascii"))


def _certified(context: ssl.SSLContext, pem: str) -> _Certified:
    """Raises `ValueError`."""
    der = ssl.PEM_cert_to_DER_cert(pem)
    return _Certified(context, sha256(der).digest(), *validity(der))


class Above(Protocol):
    """The methods of `asyncio.Protocol` that a layer calls."""

    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class SecuredSession(Above, Protocol):
    """The session above a layer."""

    def tls_started(self) -> None:
        """The handshake is done."""

    def tls_failed(self, reason: str) -> None:
        """The peer broke TLS; the layer has aborted the connection."""


def tls_status(connection: ssl.SSLObject | None) -> dict[str, str]:
    """The rows of SHOW STATUS about a session's TLS; their values are empty without TLS."""
    cipher = None if connection is None else connection.cipher()
    return {
        "Ssl_cipher": cipher[0] if cipher else "",
        "Ssl_version": (connection.version() if connection else None) or "",
    }


def tls_counters(server: TlsServer | None) -> dict[str, int | str]:
    """The rows of SHOW STATUS about the server's TLS."""
    if server is None:
        return {}
    stats = server.context.session_stats()
    return {
        "Ssl_session_cache_hits": stats["hits"],
        "Ssl_session_cache_misses": stats["misses"],
        "Ssl_session_cache_overflows": stats["cache_full"],
        "Ssl_session_cache_timeouts": stats["timeouts"],
        "Ssl_used_session_cache_entries": stats["number"],
        "Ssl_server_not_after": _openssl_time(server.expires),
        "Ssl_server_not_before": _openssl_time(server.begins),
    }


def _openssl_time(seconds: float) -> str:
    return time.strftime("%b %e %H:%M:%S %Y GMT", time.gmtime(seconds))


class TlsLayer(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket's transport, and the transport of a session.

    Made when the client has asked for TLS; `start` takes the bytes of its handshake that have come already.
    """

    def __init__(
        self, transport: asyncio.Transport, session: SecuredSession, context: ssl.SSLContext
    ) -> None:
        asyncio.Transport.__init__(self)
        self._transport = transport
        self._session = session
        self._above: Above = session  # until another layer takes its place
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._started = False
        self._reading = True
        self._feeding = False

    def start(self, received: bytes) -> None:
        """Take over the transport, with the bytes that it has received already, and read from it.

        The session's turn may have ended at the request for TLS: it has paused the transport then, and what it resumes
        later is the layer, which does not know of that pause.
        """
        self._transport.set_protocol(self)
        self._transport.resume_reading()
        self.data_received(received)

    @property
    def has_client_certificate(self) -> bool:
        """Whether the client has shown a certificate, which was verified then."""
        return self._tls.getpeercert(binary_form=True) is not None

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        self._feed()

    def eof_received(self) -> None:
        """None: the transport then closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def _feed(self) -> None:
        """Decrypt received bytes and hand them to the session, for one turn, while the session reads."""
        if self._feeding:
            return
        self._feeding = True
        turn = Turn()
        try:
            if not self._started:
                self._tls.do_handshake()
                self._started = True
                self._flush()
                self._session.tls_started()
            while self._reading and not self._transport.is_closing():
                if turn.is_over:  # a record may hold one byte only, so there may be many
                    self._transport.pause_reading()
                    asyncio.get_running_loop().call_soon(self._feed_on)
                    return
                data = self._tls.read(_READ_BYTES)
                if not data:
                    self._transport.close()  # close_notify
                    return
                self._above.data_received(data)
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLZeroReturnError:
            self._transport.close()
        except ssl.SSLError as error:
            with contextlib.suppress(ssl.SSLError):
                self._flush()  # sends the alert
            self._session.tls_failed(error.reason or "TLS error")
            self._transport.close()
        finally:
            self._feeding = False

    def _feed_on(self) -> None:
        """Go on with the bytes that the last turn has left."""
        self._feed()
        if self._reading and not self._transport.is_closing():
            self._transport.resume_reading()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # asyncio.Transport

    def write(self, data: Any) -> None:
        if self._transport.is_closing():
            return
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += self._tls.write(view[done:])
            if self._outgoing.pending >= _WRITE_BYTES:
                self._flush()
        self._flush()

    def set_protocol(self, protocol: Any) -> None:
        self._above = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == _LAYER:
            return self
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._feed)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if not self._transport.is_closing():
            self.write_eof()
            self._transport.close()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say close_notify. What the peer still sends is read until it says the same, or leaves."""
        if self._started and not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):  # unwrap waits for the peer's; we do not
                self._tls.unwrap()
            self._flush()

    def abort(self) -> None:
        self._transport.abort()

    def break_off(self) -> None:
        """Send bytes that are no TLS, and close."""
        self._transport.write(NO_TLS)
        self._transport.close()


def break_tls(transport: asyncio.Transport) -> None:
    """For tests: the peer reads bytes that are no TLS, and the end. A connection without TLS ends."""
    layer = transport.get_extra_info(_LAYER)
    if isinstance(layer, TlsLayer):
        layer.break_off()
    else:
        transport.close()
