"""The limit of open files, which is also that of connections."""

from __future__ import annotations

import logging
import resource

from binlog_server.settings.config import CONNECTIONS, ConfigError

log = logging.getLogger(__name__)

# Descriptors for the store, the log, the metrics' clients, upstreams, and libraries.
_OTHER_FILES = 192
# With fewer a server does not come as far as its first client, or stops at the first file of the store.
_LEAST_FILES = 64


def allow_open_files(max_connections: int) -> int:
    """Raise the soft limit of open files as far as the hard limit allows. Returns the possible max_connections.

    As many connections again may wait for their login (`crowd`). If the limit is too low for that, max_connections is
    reduced with a warning, as in MariaDB: connections must not take the descriptors that the store needs. Raises
    `ConfigError` where there are not enough for a store alone.
    """
    wanted = 2 * max_connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return max_connections
    if allowed < _LEAST_FILES:
        raise ConfigError(
            f"a limit of {allowed} open files is too low, a server needs {_LEAST_FILES} at least: raise it "
            "(ulimit -Hn, LimitNOFILE)"
        )
    possible = max(CONNECTIONS.low, (allowed - _OTHER_FILES) // 2)
    log.warning(
        "Could not increase number of max_open_files to more than %(allowed)d (request: %(wanted)d): raise the limit "
        "(ulimit -Hn, LimitNOFILE), or lower max_connections",
        {"allowed": allowed, "wanted": wanted},
    )
    log.warning(
        "Changed limits: max_open_files: %(allowed)d  max_connections: %(possible)d (was %(max_connections)d)",
        {"allowed": allowed, "possible": possible, "max_connections": max_connections},
    )
    return possible
