"""Unexpected errors in work for a client: the client hears 1815, the log has the place. No more threads: 1135,
no more files: 23."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final

from binlog_protocol.errors import CannotCreateThread, InternalError, OutOfFiles, ServerError
from binlog_storage.console.running import MORE_THREADS, NO_THREAD
from binlog_storage.defects import Defects

log = logging.getLogger(__name__)

_SEEN: Final = Defects()  # of the whole process: the same mistake of many clients has one traceback


def internal_error(error: Exception, what: object) -> ServerError:
    """Log it, and give what the client is told. `what`: whose work it was, a `Peer` or words."""
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        log.error("%s: %s: %s", what, error, MORE_THREADS)
        return CannotCreateThread(errno.EAGAIN, os.strerror(errno.EAGAIN))
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        log.error("%s: %s: raise the limit (ulimit -n, LimitNOFILE)", what, error)
        name = Path(os.fsdecode(error.filename or "")).name  # a path of the machine is not told
        return OutOfFiles(name, error.errno, os.strerror(error.errno))
    log.error("internal error, %s: %r", what, error, exc_info=_SEEN.trace(error))
    return InternalError(f"{type(error).__name__}; the error log of the server tells where")
