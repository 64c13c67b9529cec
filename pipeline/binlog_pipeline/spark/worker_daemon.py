"""Spark's daemon of Python workers, which says nothing when a worker that it has made finds nobody.

A session may be stopped while the daemon makes a worker: the first word of that one breaks a pipe, or the first that it
waits for does not come, and Spark's daemon prints a stack on the standard error of the program, behind its result or
error. Run as the module `spark.python.daemon.module`, in the place of `pyspark.daemon`.
"""

from __future__ import annotations

import sys
import traceback

from pyspark import daemon


class Traces:
    """What the daemon prints by: the module `traceback`, but for an end that has gone."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | EOFError):
            traceback.print_exc()


def main() -> None:
    """Make workers until Spark closes the standard input."""
    vars(daemon)["traceback"] = Traces
    daemon.manager()


if __name__ == "__main__":
    main()
