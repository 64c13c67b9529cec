"""Errors of Spark in the words of what failed: it wraps them in the stacks of two languages."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from binlog_pipeline.errors import PipelineError

_OF_SPARK: Final = "UnboundLocalError: cannot access local variable 'reader'"
"""Where a stream cannot begin, Spark stops a reader that it has not got, which hides the reason."""
_HANDLED: Final = "\nDuring handling of the above exception, another exception occurred:"
_STACK: Final = "Traceback (most recent call last):\n"
_END: Final = re.compile(
    r"\n\s*at [\w.$/]+\(|\n\s*SQLSTATE:|\n\s*(?:Driver|JVM) stacktrace|\n=== Streaming Query"
)
_CALLED: Final = re.compile(r"An error occurred while calling \S+\n: ")
"""In front of an exception of Java that Python has met itself."""
_INTERRUPTION: Final = re.compile(r"java\.[\w.]*Interrupt\w*Exception")
_BY_SPARK: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling"
"""Behind which Spark looks for an interruption."""
_GONE: Final = (
    "the JVM of Spark has gone: it was killed, or had no memory left, as for very long rows. SPARK_DRIVER_MEMORY=4g "
    "gives it more, --max-bytes-per-trigger makes batches smaller. What was published stays, and the same command goes "
    "on there"
)
_TOLD_CHARS: Final = 4000
_OUR_OWN: Final = re.compile(r"binlog_(?:pipeline|storage|protocol)\.[\w.]+: ")


@contextmanager
def in_own_words() -> Iterator[None]:
    """Errors of Spark become `PipelineError` with the text of what has failed; they are not logged beside that."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs what a function of ours raises
    try:
        yield
    except (PySparkException, Py4JError) as error:
        gone = isinstance(error, Py4JNetworkError)
        raise PipelineError(_GONE if gone else cause(str(error))) from None
    except ConnectionError as error:
        modules = [
            frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)
        ]
        if not modules[-1].startswith("py4j."):
            raise
        raise PipelineError(_GONE) from None


@contextmanager
def told_in_short() -> Iterator[None]:
    """Around what Spark calls for each batch: of a long error of Java the beginning and the end are raised.

    When a query is stopped, Spark (4.3) looks for an interruption in that text, stacks and all, by a regular expression
    which takes a stack as deep as the text is long: the thread of the query dies of it, with 75 KB on standard error.
    """
    try:
        yield
    except Py4JError as error:
        text = str(error)
        if len(text) <= _TOLD_CHARS:
            raise
        half = _TOLD_CHARS // 2
        told = f"{text[:half]}\n...\n{text[-half:]}"
        if (interruption := _INTERRUPTION.search(text)) is not None:
            told = f"{_BY_SPARK} a batch: {interruption[0]}"
        raise PipelineError(told) from None


def cause(text: str) -> str:
    """The exception at the end of the last Python stack in an error's text; its beginning without a stack."""
    before, is_there, behind = text.rpartition(_STACK)
    if _OF_SPARK in behind and _STACK in before:
        _, is_there, behind = before.partition(_HANDLED)[0].rpartition(_STACK)
    lines = (behind if is_there else text).split("\n")
    if is_there:  # the frames are indented
        while len(lines) > 1 and (not lines[0] or lines[0][0].isspace()):
            del lines[0]
    found = _END.split("\n".join(lines), maxsplit=1)[0].strip()
    found = _CALLED.sub("", found)
    own = _OUR_OWN.match(found)
    return found[own.end() :] if own else found.split("\n", 1)[0]
