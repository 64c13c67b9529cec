"""What is left of the errors of Spark."""

from __future__ import annotations

import re
import socket
import traceback

import pytest
from binlog_pipeline.errors import PipelineError
from binlog_pipeline.spark.failures import in_own_words, told_in_short
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

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


def test_a_jvm_that_has_gone() -> None:
    """It is told as that, whichever way Py4J finds out; what else refuses a connection speaks for itself."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
        with pytest.raises(PipelineError, match="JVM of Spark has gone"), in_own_words():
            jvm.java.lang.System.nanoTime()
        with pytest.raises(ConnectionRefusedError), in_own_words():
            socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(PipelineError, match="JVM of Spark has gone"), in_own_words():
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("stack", ["", STACK])
def test_an_exception_of_java(stack: str) -> None:
    """Its own words, and not the name that Py4J has for what was called."""
    with pytest.raises(PipelineError) as error, in_own_words():
        raise Py4JError(f"{BEGINNING}\n{stack}")
    assert str(error.value) == "org.apache.spark.SparkException: lost"
