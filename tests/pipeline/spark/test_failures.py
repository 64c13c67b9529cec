"""What is left of the errors of Spark."""

from __future__ import annotations

import re
import traceback

import pytest
from binlog_pipeline.errors import PipelineError
from binlog_pipeline.spark.failures import told_in_short
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

BEGINNING = (
    "An error occurred while calling o99.getResult.\n: org.apache.spark.SparkException: lost"
)
STACK = "\tat org.apache.spark.Some.thing(Some.scala:1)\n" * 1500
# As in Spark's StreamExecution, when a query is stopped.
INTERRUPTED = re.compile(
    r"py4j.protocol.Py4JJavaError: An error occurred while calling(?:.|\n)*java.lang.InterruptedException"
)


def raised(text: str) -> tuple[type[Exception], str]:
    """The kind of error that comes out, and the text that Py4J sends of it."""
    try:
        with told_in_short():
            raise Py4JError(text)
    except (Py4JError, PipelineError) as error:
        return type(error), traceback.format_exc()


@pytest.mark.parametrize("cause", ["java.io.EOFException", "java.lang.InterruptedException"])
def test_a_long_error_of_java(cause: str) -> None:
    kind, text = raised(f"{BEGINNING}\n{STACK}Caused by: {cause}\n{STACK[:1000]}")
    assert kind is PipelineError
    assert len(text) < 5000
    assert cause in text
    is_interruption = "Interrupted" in cause
    assert bool(INTERRUPTED.search(text)) is is_interruption
    assert (BEGINNING in text) is not is_interruption


def test_a_short_one_stays() -> None:
    kind, text = raised(BEGINNING)
    assert kind is Py4JError
    assert BEGINNING in text
