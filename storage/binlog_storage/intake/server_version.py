"""The version of the server that wrote the events of a store, among its facts.

Replicas are told it: it decides how some events are read.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.events.format_description import SERVER_VERSION_SIZE

from binlog_storage.disk.state import StoreFacts

UPSTREAM_VERSION_KEY: Final = "upstream_server_version"


def note_server_version(state: StoreFacts, version: str) -> None:
    """Durable when it returns. Nothing is done for an empty one, which nobody told."""
    # Cut as a MariaDB server does for its own format description.
    version = version.encode()[:SERVER_VERSION_SIZE].decode(errors="ignore")
    if version and state.get(UPSTREAM_VERSION_KEY) != version:
        state.set(UPSTREAM_VERSION_KEY, version)
