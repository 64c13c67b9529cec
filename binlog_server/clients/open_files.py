"""The limit of open files, which is also that of connections."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_OTHER_FILES = 256  # of the store, the log, the upstream, and libraries


def allow_connections(max_connections: int) -> None:
    """Raise the soft limit as far as it is needed and the hard one lets us; warn if that is not enough.

    As many again may be waiting for their login (`pending_logins`).
    """
    wanted = 2 * max_connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    if allowed < wanted:
        log.warning(
            "%(allowed)d open files are allowed, and max_connections = %(max_connections)d may take %(wanted)d: "
            "raise the limit (ulimit -n, LimitNOFILE), or lower max_connections",
            {"allowed": allowed, "max_connections": max_connections, "wanted": wanted},
        )
